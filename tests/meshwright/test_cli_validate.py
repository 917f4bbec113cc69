"""`meshwright validate`: the keys of its JSON, its sums, and what it skips."""

import csv
import json
from pathlib import Path
from statistics import fmean, median

import numpy as np
import pytest

from evidence.accuracy.choosing import FLOOR, attainable_tau, repeat_noise
from meshwright.validation.choices import families, kendall_tau
from meshwright.validation.ledger import ErrorSummary, evaluate
from meshwright.validation.rows import published_files
from planner.execution import Execution
from tests.examples import PUBLISHED_RUN

ROW = {"case_id": "one", **PUBLISHED_RUN, "peak_memory_gib": "40"}


@pytest.fixture
def cases(tmp_path):
    def write(*changes: dict[str, str]) -> Path:
        path = tmp_path / "cases.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(ROW))
            writer.writeheader()
            writer.writerows(
                {**ROW, "case_id": f"row{number}", **change} for number, change in enumerate(changes)
            )
        return path

    return write


def test_json_has_exactly_the_documented_keys_and_adds_up(run, cases):
    path = cases({}, {"derived_step_time_s": "3.0"}, {"derived_step_time_s": ""}, {"tp": ""})
    report = json.loads(run("validate", "--cases", str(path), "--json").out)
    assert set(report) == {"cases", "skipped", "summary", "summary_assumed_network"}
    keys = ["case_id", "predicted_step_time_s", "measured_step_time_s", "relative_error"]
    keys += ["step_time_uncertainty", "assumed", "predicted_peak_memory_bytes", "fits"]
    assert all(list(case) == keys for case in report["cases"])
    assert report["skipped"] == [{"case_id": "row3", "reason": "tp not stated"}]
    first, second, unmeasured = report["cases"]
    assert first["relative_error"] == pytest.approx(first["predicted_step_time_s"] / 2.0 - 1)
    assert (unmeasured["measured_step_time_s"], unmeasured["relative_error"]) == (None, None)
    errors = [first["relative_error"], second["relative_error"]]
    assert report["summary"] == {
        "n": 2,
        "median_abs_error": pytest.approx(median(map(abs, errors))),
        "p90_abs_error": pytest.approx(min(map(abs, errors)) + 0.9 * abs(abs(errors[0]) - abs(errors[1]))),
        "mean_abs_error": pytest.approx(fmean(map(abs, errors))),
        "bias": pytest.approx(fmean(errors)),
    }


def test_an_assumed_network_is_said_and_summed_apart(run, cases):
    path = cases({"micro_batch": "2"}, {"n_gpus": "16", "micro_batch": "2"})
    report = json.loads(run("validate", "--cases", str(path), "--json").out)
    stated, assumed = report["cases"]
    assert "network" not in stated["assumed"]
    assert {"network", "recomputation", "sharding", "vocabulary"} <= set(assumed["assumed"])
    assert stated["step_time_uncertainty"] > 0
    assert report["summary"]["bias"] == pytest.approx(stated["relative_error"])
    assert report["summary_assumed_network"]["bias"] == pytest.approx(assumed["relative_error"])
    assert "network or micro batch assumed" in run("validate", "--cases", str(path), "--summary").out


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"n_layers": "many"}, "column 'n_layers' must be a number, found 'many'"),
        ({"seq_len": "-1"}, "must be 0 or a number from 1e-24 to 1e+18, found '-1'"),
        ({"gpu": "abacus"}, "no cluster with 'abacus' is known"),
        ({"framework": "pencil"}, "framework 'pencil' is not known"),
        ({"precision": "fp8"}, "fp8"),
        ({"global_batch": "63"}, "does not divide"),
    ],
)
def test_a_row_that_cannot_be_used_is_skipped_with_its_reason(run, cases, change, reason):
    report = json.loads(run("validate", "--cases", str(cases({}, change)), "--json").out)
    assert [case["case_id"] for case in report["cases"]] == ["row0"]
    assert report["skipped"][0]["case_id"] == "row1"
    assert reason in report["skipped"][0]["reason"]


def test_no_case_is_skipped_for_predicting_badly(run, cases):
    path = cases({"derived_step_time_s": "0.000001"}, {"derived_step_time_s": "1000000"})
    report = json.loads(run("validate", "--cases", str(path), "--json").out)
    assert (len(report["cases"]), report["skipped"]) == (2, [])
    assert report["summary"]["mean_abs_error"] > 1


def test_cases_of_one_setting_are_predicted_as_each_alone(cases):
    changes = [{"micro_batch": "1"}, {"micro_batch": "2"}, {"tp": "2"}, {"n_layers": "12"}]
    together = evaluate([cases(*changes)]).entries
    alone = [evaluate([cases(change)]).entries[0] for change in changes]
    assert [entry.predicted_step_s for entry in together] == pytest.approx(
        [entry.predicted_step_s for entry in alone]
    )


def test_nothing_measured_sums_up_to_nothing():
    assert ErrorSummary.of([None, None]) == ErrorSummary(0, None, None, None, None)


def test_the_table_sums_up_by_gpu_framework_precision_and_memory(run, cases):
    path = cases({}, {"tp": "2"}, {"tp": "4"}, {"pp": ""})
    out = run("validate", "--cases", str(path)).out
    for word in (
        "row0",
        "GPU",
        "framework",
        "precision",
        "bias",
        "peak memory measured",
        "Kendall's tau",
        "pp not stated",
    ):
        assert word in out
    assert "row0" not in run("validate", "--cases", str(path), "--summary").out


def test_a_limit_on_the_error_decides_the_exit_code(run, cases):
    path = str(cases({"derived_step_time_s": "1000000"}))
    assert run("validate", "--cases", path, "--max-median", "0.1").code == 1
    assert run("validate", "--cases", path, "--max-median", "1").code == 0


def test_a_family_is_judged_by_its_first_choice_and_its_order(cases):
    path = cases({"tp": "1"}, {"tp": "2"}, {"tp": "4"}, {"tp": "8"})
    entries = evaluate([path]).entries
    (family,) = families(entries)
    assert (family.n, family.regret, family.tau) == (4, 0.0, 0.0)  # all measured alike: no order to find


def test_of_many_questions_the_largest_are_shown_and_the_others_counted(run, cases):
    rows = [{"global_batch": str(64 * more), "tp": tp} for more in range(1, 15) for tp in ("1", "2", "4")]
    out = run("validate", "--cases", str(cases(*rows)), "--summary").out
    assert "and 2 more" in out
    assert "all 14" in out


def test_kendalls_tau():
    assert kendall_tau(_array(1, 2, 3, 4), _array(10, 20, 30, 40)) == 1
    assert kendall_tau(_array(1, 2, 3, 4), _array(4, 3, 2, 1)) == -1
    assert kendall_tau(_array(1, 2, 3, 4), _array(1, 2, 4, 3)) == pytest.approx(4 / 6)
    assert kendall_tau(_array(1, 1), _array(1, 2)) == 0


def _array(*values):
    return np.array(values, dtype=float)


def test_the_shipped_cases_are_predicted():
    ledger = evaluate(published_files()[:1])
    assert ledger.entries
    assert all(entry.predicted_step_s > 0 for entry in ledger.entries)


def test_a_limit_on_the_median_is_for_whole_runs(refused, tmp_path):
    assert "whole runs" in refused("validate", "--kernels", str(tmp_path), "--max-median", "0.1")


def test_a_cluster_goes_with_measured_collectives_only(refused, tmp_path):
    assert "--kernels" in refused("validate", "--cluster", "dgx-h100")
    message = refused("validate", "--kernels", str(tmp_path), "--cluster", "dgx-h10")
    assert "--cluster" in message and "dgx-h100" in message


def test_a_row_without_its_micro_batch_takes_the_fastest_that_fits(cases):
    entries = evaluate(
        [cases({"micro_batch": ""}, *({"micro_batch": str(size)} for size in (1, 2, 4)))]
    ).entries
    guessed, *stated = entries
    assert guessed.case.is_guess and "micro batch" in guessed.case.assumed
    assert not any(entry.case.is_guess for entry in stated)
    assert guessed.predicted_step_s <= min(entry.predicted_step_s for entry in stated if entry.fits) * (
        1 + 1e-9
    )


@pytest.mark.slow
def test_two_processes_find_the_same(monkeypatch):
    alone = evaluate(published_files()[:1])
    monkeypatch.setattr("planner.execution.WORTH_SHARING_S", 0.0)
    shared = evaluate(published_files()[:1], execution=Execution(workers=2))
    assert [(entry.case.case_id, entry.predicted_step_s) for entry in shared.entries] == [
        (entry.case.case_id, entry.predicted_step_s) for entry in alone.entries
    ]
    assert shared.skipped == alone.skipped


def test_semicolons_between_values_are_named(refused, tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text("case_id;gpu;n_gpus\none;h100-sxm;8\n")
    assert "separated by ';', a comma is needed" in refused("validate", "--cases", str(path))
    points = tmp_path / "gemm.csv"
    points.write_text("gpu;dtype;layout;m;n;k;time_us\nh100-sxm;bf16;forward;1;1;1;1\n")
    command = ["calibrate", str(points), "--device", "h100-sxm", "-o", str(tmp_path / "mine.yaml")]
    assert "separated by ';', a comma is needed" in refused(*command)


def test_wrong_pairs_are_those_that_cost_tau(cases):
    changes = [{"micro_batch": str(size), "derived_step_time_s": str(size)} for size in (1, 2, 4)]
    (family,) = families(evaluate([cases(*changes)]).entries)
    pairs = family.n * (family.n - 1) / 2
    assert family.tau == pytest.approx(1 - 2 * len(family.wrong) / pairs)
    assert family.wrong  # larger micro batches are predicted faster, and "measured" slower
    for pair in family.wrong:
        assert pair.measured > 0 > pair.predicted
    assert [pair.measured for pair in family.wrong] == sorted(
        (pair.measured for pair in family.wrong), reverse=True
    )


def test_noise_is_the_spread_of_repeated_plans(cases):
    few = evaluate([cases({}, {"derived_step_time_s": "2.2"})]).entries
    assert repeat_noise(few) == (FLOOR, 1)
    times = [2.0, 2.0 * np.exp(0.1)]
    repeated = [
        {"micro_batch": size, "derived_step_time_s": f"{time:.9f}"}
        for size in ("1", "2", "4")
        for time in times
    ]
    # A time that is printed twice is one measurement.
    noise, plans = repeat_noise(evaluate([cases(*repeated, repeated[0])]).entries)
    assert (noise, plans) == (pytest.approx(0.1 / np.sqrt(2)), 3)


def test_attainable_tau_falls_from_one_to_none_as_noise_grows():
    measured = (1.0, 1.1, 1.3)
    taus = [attainable_tau(measured, noise) for noise in (1e-6, 0.02, 0.1, 1.0, 1e3)]
    assert taus[0] == pytest.approx(1.0)
    assert taus == sorted(taus, reverse=True)
    assert taus[-1] == pytest.approx(0.0, abs=1e-3)
    # One pair one standard deviation of a difference apart: 2 Phi(1) - 1.
    assert attainable_tau((1.0, float(np.exp(0.1 * np.sqrt(2)))), 0.1) == pytest.approx(0.6827, abs=1e-4)
    assert attainable_tau((1.0,), 0.1) == 1.0


def test_runs_that_differ_in_what_a_script_chose_are_predicted_apart(run, cases):
    path = cases({}, {"framework": "Megatron-LM, FlashAttention-2"})
    report = json.loads(run("validate", "--cases", str(path), "--json").out)
    slow, fast = (case["predicted_step_time_s"] for case in report["cases"])
    assert slow != fast
