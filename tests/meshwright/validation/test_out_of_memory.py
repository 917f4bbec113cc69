"""Runs that ran out of memory, as their sources report them."""

from pathlib import Path

import numpy as np
import pytest

from meshwright.validation.cases import read_cases
from planner.prediction import simulate_plan
from simulator.uncertainty import chance_to_fit

REPORTS = Path(__file__).parents[3] / "benchmarks" / "out_of_memory.csv"
CASES, SKIPPED = read_cases(REPORTS)


def test_every_report_is_read():
    assert len(CASES) >= 4 and not SKIPPED


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.case_id)
def test_no_run_that_ran_out_of_memory_is_said_to_fit_with_over_90_percent(case):
    peak = simulate_plan(case.setting, case.plan).prediction.memory.peak
    assert np.all(chance_to_fit(peak, case.setting.cluster.device.memory_bytes) < 0.9)
