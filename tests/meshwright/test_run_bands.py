"""Days, dollars and energy with bands: rounded as they are known."""

from __future__ import annotations

import pytest

from meshwright.reports.run_bands import Band, around, days_band, in_proportion

RUN = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 64,
    "workload": {"seq_len": 8192, "global_batch": 128},
    "plan": {"tensor": 1, "micro_batch": 1},
    "run": {
        "tokens": 1e11,
        "faults": {"kind": "exponential", "mtbf": "300 d", "of": "node"},
        "checkpoints": {"mechanism": "asynchronous", "every": "auto"},
    },
}


@pytest.mark.parametrize(
    ("band", "words"),
    [
        (Band(24.35, 19.8, 29.0), "24 d (20 to 29)"),
        (Band(41.2, 31.0, 51.4), "41 d (31 to 51)"),
        (Band(412.0, 310.0, 514.0), "410 d (310 to 510)"),
        (Band(0.512, 0.47, 0.55), "0.51 d (0.47 to 0.55)"),
        (Band(3.0, 3.0, 3.0), "3 d"),
        (Band(float("inf"), float("inf"), float("inf")), "never"),
        (Band(5.0, 4.0, float("inf")), "5 d (4 to never)"),
    ],
)
def test_figures_are_rounded_to_half_their_band(band, words):
    assert band.words("d") == words


def test_a_size_without_a_band_has_three_digits():
    assert around(1234.0, None).words("$") == "1,234 $"


def test_band_of_a_run_holds_the_error_of_its_step():
    """At least as wide as the step's own band, in days and in dollars."""
    import meshwright as mw

    planned = mw.run(RUN).planned
    half = float(planned.prediction.confidence.half_width[0])
    days = days_band(planned)
    assert half > 0.01
    assert 1.0 - days.low / days.middle >= half
    assert days.high / days.middle - 1.0 >= half
    money = in_proportion(planned.usd, days)
    assert money.low / money.middle == pytest.approx(days.low / days.middle)


def test_variations_carry_the_bands_of_their_steps_and_runs(run, tmp_path):
    """The table and the page; the days of the run are rounded as they are known."""
    import json

    import yaml

    path, page = tmp_path / "run.yaml", tmp_path / "w.html"
    path.write_text(yaml.safe_dump(RUN))
    asked = "whatif", str(path), "--set", "gpus=128"
    report = json.loads(run(*asked, "--json").out)
    half, (low, high) = report["base"]["step_time_uncertainty"], report["base"]["run"]["finish_band_days"]
    mean = report["base"]["run"]["finish_days"]["mean"]
    assert low <= mean * (1 - half) and mean * (1 + half) <= high
    text = " ".join(run(*asked, "--html", str(page)).out.split())
    for written in (text, page.read_text(encoding="utf-8")):
        assert f"{100 * half:.0f}" in written and Band(mean, low, high).ends() in written
        assert "90 % band of the step" in written


def test_a_saved_plan_keeps_the_run_and_its_verdict_says_that_no_faults_are_stated(run, tmp_path):
    import yaml

    path, saved = tmp_path / "run.yaml", tmp_path / "saved.yaml"
    asked = {key: value for key, value in RUN.items() if key != "plan"}
    path.write_text(yaml.safe_dump(asked))
    assert run("plan", "train", str(path), "--save", str(saved)).code == 0
    kept = yaml.safe_load(saved.read_text())
    assert (kept["run"]["tokens"], kept["run"]["faults"]) == (1e11, RUN["run"]["faults"])
    assert "goodput" in run("simulate", str(saved)).out
    path.write_text(yaml.safe_dump({**asked, "run": {"tokens": 1e11}}))
    text = " ".join(run("plan", str(path), "--run", "--top", "1").out.split())
    assert "No faults are stated" in text and "step's error and the faults" not in text


def test_a_short_period_says_what_a_longer_one_costs(run, tmp_path):
    """An optimum of seconds is a period that nobody sets."""
    import yaml

    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(RUN))
    assert "costs less than 1 %" in " ".join(run("simulate", str(path)).out.split())


def test_a_ranking_of_runs_has_a_page_and_a_verdict(run, tmp_path):
    import yaml

    path, page = tmp_path / "run.yaml", tmp_path / "run.html"
    path.write_text(yaml.safe_dump({key: value for key, value in RUN.items() if key != "plan"}))
    outcome = run("plan", str(path), "--run", "--top", "2", "--html", str(page))
    assert outcome.code == 0, outcome.err
    assert " d (" in outcome.out.splitlines()[0]
    assert "90 % band of the step" in outcome.out
    assert "Cost against days" in page.read_text(encoding="utf-8")


def test_a_batch_of_millions_of_sequences_is_noted(run):
    asked = ("--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "8", "--seq-len", "8192")
    outcome = run(
        "plan", "train", *asked, "--global-batch", "4M", "--fix", "pipeline=1", "--fix", "context=1"
    )
    assert "did you mean --batch-tokens" in outcome.err
