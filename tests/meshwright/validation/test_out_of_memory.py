"""Runs that ran out of memory, and whose peak a source prints."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from evidence.fits import memory_chances
from meshwright.validation.cases import read_case, read_cases
from meshwright.validation.ledger import PredictedCase, predicted
from meshwright.validation.rows import read_rows
from planner.training.prediction import simulate_plan
from simulator.uncertainty import chance_to_fit, distance_of, model_errors

REPORTS = Path(__file__).parents[3] / "evidence" / "fits" / "out_of_memory.csv"
CASES, SKIPPED = read_cases(REPORTS)


def test_every_report_is_read():
    assert len(CASES) >= 40 and not SKIPPED


def test_few_runs_that_ran_out_of_memory_are_recommended():
    """At most one in five: docs/accuracy/training.md names those that did."""
    said = []
    for case in CASES:
        peak = simulate_plan(case.setting, case.plan).prediction.memory.peak
        memory = case.setting.cluster.device.memory_bytes
        if chance_to_fit(peak, memory, case.setting)[0] >= model_errors().memory.required_chance:
            said.append(case.case_id)
    assert len(said) <= len(CASES) / 5, said


@pytest.mark.parametrize(
    ("change", "words"),
    [({"seq_len": ""}, "seq_len: a whole number from 1 is needed, found ''"), ({"tp": "x"}, "'tp'.*'x'")],
)
def test_a_report_without_a_size_is_refused(tmp_path, capsys, monkeypatch, change, words):
    row = read_rows(REPORTS)[0] | change
    path = tmp_path / "reports.csv"
    path.write_text(",".join(row) + "\n" + ",".join(f'"{value}"' for value in row.values()) + "\n")
    monkeypatch.setattr("sys.argv", ["memory_chances", "--ran-out", str(path)])
    monkeypatch.setattr(memory_chances, "OUT_OF_MEMORY", path)
    with pytest.raises(SystemExit) as ended:
        memory_chances.main()
    told = capsys.readouterr().err
    assert ended.value.code == 2 and re.search(words, told) and "reports.csv" in told and "OOM-1" in told


def test_full_devices_hold_as_much_without_a_tensor_as_is_reported():
    """Within half to twice the median of the reports."""
    reported = [share for _, share in memory_chances.unallocated_shares(memory_chances.FULL_DEVICES).values()]
    expected = [memory_chances.predicted_unallocated(entry) for entry in predicted(CASES)]
    assert len(reported) >= 25 and all(0 <= share < 1 for share in reported)
    assert 0.5 < np.median(expected) / np.median(reported) < 2


def test_a_report_of_a_full_device_without_a_size_is_refused(tmp_path):
    path = tmp_path / "full.csv"
    path.write_text("report,url,device_gib,allocated_gib,unallocated_gib\nissue 1,u,24,,1\n")
    with pytest.raises(InputError, match="a size is missing") as refused:
        memory_chances.unallocated_shares(path)
    assert "issue 1" in str(refused.value)


def test_a_fit_of_errors_finds_the_distribution_it_is_shown():
    setting = CASES[0].setting
    logs = 0.05 + 0.12 * distance_of(np.linspace(0.005, 0.995, 100))
    case = dataclasses.replace(CASES[0], measured_peak_bytes=1e9, setting=setting)
    runs = [PredictedCase(case, 1.0, 1e9 / np.exp(log), None) for log in logs]
    errors = memory_chances.fitted(runs)
    assert (errors.bias, errors.spread) == pytest.approx((0.05, 0.12), abs=0.006)


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
        beside.context_bytes + 4 * beside.buffer_bytes_per_group
    )
    decimal = read_case(row | {"peak_unit": "GB"}, "")
    assert decimal.measured_peak_bytes == 70e9
