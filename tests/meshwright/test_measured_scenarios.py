"""Scenarios with measured figures: one row format of all kinds of question."""

import json

import pytest
import yaml

from meshwright.questions.scenarios import shipped_scenarios

STEP = {"measured": {"step_time_s": "2.5 s", "memory.peak_bytes": "40 GiB"}, "citation": "our run 17"}
SERVED = {"measured": {"ttft_s.p50": "100 ms", "output_rate": "1,900 tokens/s", "slo_share": "98 %"}}


@pytest.fixture
def written(tmp_path):
    def write(name, values, **changes):
        data = yaml.safe_load(shipped_scenarios()[name].read_text(encoding="utf-8"))
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump({**data, **values, **changes}), encoding="utf-8")
        return path

    return write


def test_figures_of_a_step_are_those_of_simulate(run, written):
    path = written("llama3-8b-64-h100", STEP)
    told = json.loads(run("simulate", str(path), "--json").out)
    rows = json.loads(run("validate", str(path), "--json").out)
    step, peak = (
        next(row for row in rows["cases"] if row["figure"] == figure) for figure in STEP["measured"]
    )
    assert step["predicted"] == told["step_time_s"] and step["measured"] == 2.5
    assert step["relative_error"] == pytest.approx(told["step_time_s"] / 2.5 - 1)
    assert peak["measured"] == 40 * 2**30 and peak["citation"] == "our run 17"
    assert rows["summary"]["step_time_s"]["n"] == 1
    table = run("validate", str(path)).out
    assert "our run 17" in table and "step_time_s" in table
    assert run("validate", str(path), "--max-median", "0.0001").code == 1


@pytest.mark.slow
def test_servers_and_steps_are_validated_together(run, written):
    files = written("serve-llama3-70b", SERVED, citation="our server"), written("llama3-8b-64-h100", STEP)
    rows = json.loads(run("validate", *map(str, files), "--json").out)
    figures = {row["figure"]: row for row in rows["cases"]}
    assert set(figures) == {*SERVED["measured"], *STEP["measured"]}
    assert figures["ttft_s.p50"]["measured"] == pytest.approx(0.1)
    assert figures["slo_share"]["measured"] == pytest.approx(0.98)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"measured": {"step_time_s": 2.5}},
            "must be a number with a unit (us, ms, s, min, h, d), found 2",
        ),
        ({"measured": {"step_time_s": "2.5 GiB"}}, "measured.step_time_s: must be a number with a unit"),
        ({"measured": {"step_tim_s": "2.5 s"}}, "did you mean 'step_time_s'"),
        ({"measured": {"gpus": "64 s"}}, "is no figure that is compared"),
        ({"measured": {}}, "key 'measured' must map figures"),
        ({"citation": " "}, "key 'citation' must say"),
        ({"measured": {"step_time_s": "0 s"}}, "must be above 0"),
    ],
)
def test_wrong_figures_are_refused(refused, written, changes, said):
    assert said in refused("validate", str(written("llama3-8b-64-h100", STEP, **changes)))


def test_tables_and_other_questions_are_refused(refused, written, tmp_path):
    path = str(written("llama3-8b-64-h100", STEP))
    (tmp_path / "runs.csv").write_text("case_id\n", encoding="utf-8")
    assert "is a table" in refused("validate", str(tmp_path / "runs.csv"))
    assert "go with --summary" in refused("validate", path, "--cases", "runs.csv")
