"""Runs of weeks from the command line."""

import json

import pytest

from simulator.runs import result

ENDLESS = """
model: llama3.1-8b
cluster: dgx-h100
gpus: 16
workload: {seq_len: 4096, global_batch: 64}
plan: {tensor: 2, data: 8}
run:
  days: 30
  faults: {kind: exponential, mtbf: 2 h, of: job}
  replications: 20
"""
STEP = ENDLESS.partition("run:")[0]


@pytest.mark.slow
def test_a_run_that_never_finishes_costs_no_number(run, tmp_path):
    path = tmp_path / "endless.yaml"
    path.write_text(ENDLESS, encoding="utf-8")
    report = json.loads(run("simulate", str(path), "--json").out)["run"]
    assert report["unfinished"] == report["replications"] == 3  # no more are drawn: they say the same
    assert report["usd"] is None and report["kwh"] is None and report["finish_days"]["mean"] is None
    assert "the run never finishes" in run("simulate", str(path)).out
    (lost,) = [line for line in report["assumed"] if line.startswith("no checkpoints")]
    assert "each fault starts the run again" in lost
    assert "checkpoints: {mechanism: asynchronous, every: auto}" in lost


def written(tmp_path, run):
    path = tmp_path / "run.yaml"
    path.write_text(f"{STEP}run: {run}\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("elastic", ["{drop: data}", "{replan: 1}", "wait", "restart"])
def test_a_run_whose_faults_outrun_recovery_says_so_whatever_it_does_on_a_loss(run, tmp_path, elastic):
    faults = "{kind: exponential, mtbf: 60, of: device}"
    path = written(tmp_path, f"{{days: 1, replications: 1, faults: {faults}, elastic: {elastic}}}")
    outcome = run("simulate", path)
    assert outcome.code == 2
    assert "the run never finishes" in outcome.err


def test_more_faults_than_a_replication_follows_are_refused(run, tmp_path):
    faults = "{kind: exponential, mtbf: 0.01, of: device}"
    recovery = "{detect: 0, locate: 0, replace: {warm_spare: 0}, initialise: 0}"
    path = written(tmp_path, f"{{days: 100, faults: {faults}, recovery: {recovery}}}")
    outcome = run("simulate", path)
    assert outcome.code == 2
    assert "a run may have 100,000" in outcome.err


@pytest.mark.parametrize("checkpoints", ["{mechanism: synchronous, every: auto}", "null"])
def test_a_run_without_a_period_has_a_page_and_json(run, tmp_path, checkpoints):
    faults = "null" if checkpoints != "null" else "{kind: exponential, mtbf: 90 d, of: job}"
    text = f"{{days: 1, replications: 2, faults: {faults}, checkpoints: {checkpoints}}}"
    page = tmp_path / "page.html"
    outcome = run("simulate", written(tmp_path, text), "--json", "--html", str(page))
    checkpoint = json.loads(outcome.out)["run"]["checkpoint"]
    assert checkpoint is None or checkpoint["period_s"] is None
    assert page.stat().st_size > 10_000
    shown = run("simulate", written(tmp_path, text)).out
    assert "inf" not in shown


def test_tokens_may_be_written_as_of_a_flag(run, tmp_path):
    word = json.loads(run("simulate", written(tmp_path, "{tokens: 2B}"), "--json").out)
    number = json.loads(run("simulate", written(tmp_path, "{tokens: 2.0e+9}"), "--json").out)
    assert word == number
    refused = run("simulate", written(tmp_path, "{tokens: many}"))
    assert refused.code == 2 and "15T" in refused.err


def test_an_interrupted_run_shows_what_was_drawn_and_exits_130(run, tmp_path, monkeypatch):
    drawn = iter(range(3))
    replicate = result.replicate

    def until_the_third(*arguments):
        if next(drawn) == 2:
            raise KeyboardInterrupt
        return replicate(*arguments)

    monkeypatch.setattr(result, "replicate", until_the_third)
    faults = "{kind: exponential, mtbf: 90 d, of: job}"
    outcome = run("simulate", written(tmp_path, f"{{days: 1, replications: 5, faults: {faults}}}"), "--json")
    report = json.loads(outcome.out)["run"]
    assert outcome.code == 130
    assert report["interrupted"] and report["replications"] == 2
    assert "interrupted: 2 replications were drawn" in outcome.err


def test_goodput_to_first_order_is_none_outside_its_range(run, tmp_path):
    faults = "{kind: exponential, mtbf: 1 h, of: job}"
    parts = "checkpoints: {mechanism: synchronous, every: 3 h}, elastic: {drop: data, stall: 10, out: 60}"
    text = f"{{days: 3, replications: 1, faults: {faults}, {parts}}}"
    closed = json.loads(run("simulate", written(tmp_path, text), "--json").out)["run"]["closed_form"]
    assert closed["first_order"] is None and 0 < closed["exact"] < 1


def test_a_detector_that_costs_more_than_it_gains_saves_nothing(run, tmp_path):
    slow = "[{stage: 0, slowdown: 1.2, from: 600, until: 610}]"
    report = json.loads(run("simulate", written(tmp_path, f"{{days: 1, stragglers: {slow}}}"), "--json").out)
    (detector,) = report["run"]["detectors"]
    assert detector["saves_s"] is None or detector["saves_s"] > 0
