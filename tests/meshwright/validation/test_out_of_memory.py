"""Runs that ran out of memory, and whose peak a source prints."""

from pathlib import Path

import numpy as np
import pytest

from meshwright.validation.cases import read_case, read_cases
from meshwright.validation.ledger import predicted
from meshwright.validation.rows import read_rows
from planner.prediction import simulate_plan
from simulator.uncertainty import chance_to_fit

REPORTS = Path(__file__).parents[3] / "evidence" / "fits" / "out_of_memory.csv"
CASES, SKIPPED = read_cases(REPORTS)


def test_every_report_is_read():
    assert len(CASES) >= 4 and not SKIPPED


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.case_id)
def test_no_run_that_ran_out_of_memory_is_said_to_fit_with_over_90_percent(case):
    peak = simulate_plan(case.setting, case.plan).prediction.memory.peak
    setting = case.setting
    assert np.all(chance_to_fit(peak, setting.cluster.device.memory_bytes, setting) < 0.9)


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
    row |= {"vocab": "256000"}
    figures = {}, {"peak_of": "first stage"}, {"peak_counts": "reserved"}
    fullest, first, reserved = predicted([read_case(row | stated, "") for stated in figures])
    assert fullest.fits is first.fits and first.predicted_peak_bytes == fullest.predicted_peak_bytes
    assert first.figure_bytes / (70 * 2**30) - 1 == pytest.approx(first.memory_error)
    assert fullest.figure_bytes == fullest.predicted_peak_bytes != first.figure_bytes
    assert reserved.predicted_peak_bytes == fullest.predicted_peak_bytes
    beside = fullest.case.setting.framework.memory
    assert fullest.figure_bytes - reserved.figure_bytes == pytest.approx(
        beside.context_bytes + 2 * beside.buffer_bytes_per_group
    )
    decimal = read_case(row | {"peak_unit": "GB"}, "")
    assert decimal.measured_peak_bytes == 70e9
