"""Runs that ran out of memory, and whose peak a source prints."""

from pathlib import Path

import numpy as np
import pytest

from meshwright.validation.cases import read_case, read_cases
from meshwright.validation.ledger import predicted
from meshwright.validation.rows import read_rows
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


def test_a_peak_of_the_first_stage_is_compared_with_the_first_stage():
    row = read_rows(REPORTS)[0] | {"pp": "2", "dp": "4", "ep": "4", "peak_memory_gib": "70", "n_experts": ""}
    row |= {
        "activation_recompute": "full",
        "framework": "Megatron-Core",
        "zero_stage": "1",
        "model_name": "llama2-7b",
        "n_layers": "32",
    }
    row |= {
        "d_model": "4096",
        "n_heads": "32",
        "n_kv_heads": "32",
        "d_ff": "11008",
        "vocab": "32000",
        "ep": "1",
    }
    fullest, first = predicted([read_case(row, ""), read_case(row | {"peak_of": "first stage"}, "")])
    assert fullest.fits is first.fits and first.predicted_peak_bytes == fullest.predicted_peak_bytes
    assert first.predicted_first_bytes / (70 * 2**30) - 1 == pytest.approx(first.memory_error)
    assert fullest.predicted_peak_bytes / (70 * 2**30) - 1 == pytest.approx(fullest.memory_error)
    assert fullest.predicted_peak_bytes != fullest.predicted_first_bytes
