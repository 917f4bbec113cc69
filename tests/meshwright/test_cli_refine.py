"""`meshwright plan --refine N`: the best plans on the event engine, and where it disagrees."""

import json

import pytest

QUESTION = ["plan", "llama3-8b-64-h100", "--limit", "pipeline=2", "--limit", "context=2"]


def test_the_best_plans_have_the_engines_time_and_the_others_do_not(run):
    ran = run(*QUESTION, "--top", "5", "--refine", "3", "--json")
    assert ran.code == 0, ran.err
    plans = json.loads(ran.out)["plans"]
    assert ["engine" in plan for plan in plans] == [True, True, True, False, False]
    best = plans[:3]
    assert sorted(plan["engine"]["rank"] for plan in best) == [1, 2, 3]
    for plan in best:
        engine, analytic = plan["engine"], plan["step_time_s"]
        assert engine["over_analytic"] == pytest.approx(engine["step_time_s"] / analytic - 1)
        assert abs(engine["over_analytic"]) < 0.05
        assert sum(engine["disagrees_s"].values()) == pytest.approx(engine["step_time_s"] - analytic)
    by_rank = sorted(best, key=lambda plan: plan["engine"]["rank"])
    times = [plan["engine"]["step_time_s"] for plan in by_rank]
    assert times == sorted(times)


def test_the_engines_time_is_that_of_simulate(run, tmp_path):
    plan = json.loads(run(*QUESTION, "--refine", "1", "--json").out)["plans"][0]
    path = tmp_path / "best.json"
    question = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "gpus": 64,
        "workload": {"seq_len": 8192, "global_batch": 128, "precision": "bf16"},
        "framework": "torch-fsdp",
    }
    path.write_text(json.dumps({**question, "plan": plan["plan"]}), encoding="utf-8")
    report = json.loads(run("simulate", str(path), "--engine", "--json").out)
    assert report["engine"]["step_time_s"] == plan["engine"]["step_time_s"]


def test_more_than_are_shown_can_be_refined(run):
    plans = json.loads(run(*QUESTION, "--top", "1", "--refine", "2", "--json").out)["plans"]
    assert ["engine" in plan for plan in plans] == [True, True]


def test_other_processes_find_the_same(run, monkeypatch):
    alone = run(*QUESTION, "--refine", "3", "--json").out
    monkeypatch.setattr("planner.execution.WORTH_SHARING_S", 0.0)
    assert run(*QUESTION, "--refine", "3", "--json").out == alone


@pytest.mark.slow
def test_the_table_says_by_how_much_they_disagree(run):
    out = run(*QUESTION, "--refine", "2").out
    assert "On the event engine" in out
    assert "They disagree by" in out


def test_a_negative_number_is_refused(run):
    ran = run(*QUESTION, "--refine", "-1")
    assert ran.code == 2
    assert "--refine" in ran.err
