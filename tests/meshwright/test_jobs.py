"""Kinds of question: told apart in one place, answered by one record of functions each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import meshwright as mw
from core.errors import InputError
from core.loading import read_mapping
from meshwright.jobs import AskOptions, job_of, jobs
from meshwright.questions.scenarios import shipped_scenarios
from simulator.kinds import KINDS, kind_of

ROOT = Path(__file__).parents[2]
ASKS_THE_KIND = (
    r"is_serving|is_rl\b|asks_serving|asks_post_training|serving_data|has_run\b|OTHER_KINDS"
    r"|get\(.kind.\) (==|in)|\.workload == named"
    rf"|kind(\.name)? [!=]= .({'|'.join(KINDS)})\b"
)
ONE_OF_EACH = {
    "gpt3-175b-1024-a100": "step",
    "mixed-llama3-70b": "mixed",
    "papers/run-c4": "run",
    "serve-llama3-70b": "serving",
    "rl-qwen3-30b": "rl",
    "diffusion-sd3.5-large": "diffusion",
    "tables-dlrm-dcnv2": "tables",
    "graph-gcn-products": "graph",
    "frames-ppo-atari": "frames",
}
STEP = {
    "model": "llama3-8b",
    "cluster": "dgx-h100",
    "gpus": 8,
    "workload": {"seq_len": 4096, "global_batch": 64},
}
SERVE = {
    "model": "llama3-8b",
    "cluster": "dgx-h100",
    "workload": {
        "kind": "serving",
        "requests": 20,
        "arrivals": {"kind": "burst"},
        "input": {"kind": "fixed", "tokens": 200},
        "output": {"kind": "fixed", "tokens": 20},
    },
}


def test_one_place_asks_for_the_kind_of_a_question():
    asking = [
        path.relative_to(ROOT).as_posix()
        for package in ("benchmarks", "evidence", "meshwright", "planner", "simulator")
        for path in sorted((ROOT / package).rglob("*.py"))
        if re.search(ASKS_THE_KIND, path.read_text(encoding="utf-8"))
    ]
    assert asking == ["simulator/kinds.py"]


def test_every_kind_has_its_job():
    assert [job.kind for job in jobs()] == list(KINDS)


@pytest.mark.parametrize("name", shipped_scenarios())
def test_every_shipped_scenario_is_of_a_kind_that_checks_it(name):
    path = shipped_scenarios()[name]
    data = read_mapping(path)
    kind = kind_of(data, str(path), path.parent)
    kind.check(data, str(path), path.parent)
    if data.get("variations"):
        job_of(data, str(path), path.parent).inquiry((data, str(path), path.parent), AskOptions(), None)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), ONE_OF_EACH.items())
def test_simulate_answers_every_kind(name, kind):
    assert kind_of(*_of(name)).name == kind
    answer = mw.simulate(name)
    assert answer.to_dict()["title"]
    assert repr(answer)


def _of(name):
    path = shipped_scenarios()[name]
    return read_mapping(path), str(path), path.parent


def test_whatif_varies_serving():
    compared = mw.whatif(SERVE, variations={"more": {"set": {"workload.requests": 40}}})
    base, more = compared.outcomes
    assert base.report["requests"] == 20
    assert more.report["requests"] == 40
    assert compared.to_dict()["variations"][0]["name"] == "more"


def test_whatif_varies_a_step_on_groups():
    data, *_ = _of("mixed-llama3-70b")
    compared = mw.whatif(data, variations={"half": {"set": {"workload.global_batch": 64}}})
    assert compared.to_dict()["variations"][0]["step_time_change"] == pytest.approx(-0.5, abs=0.1)
    assert "half" in repr(compared)


@pytest.mark.slow
def test_plan_of_serving_is_a_deployment():
    asked = {
        **SERVE,
        "gpus": 8,
        "workload": {**SERVE["workload"], "slo": {"ttft": 1.0, "tpot": 0.05}},
    }
    assert mw.plan(asked).best.goodput > 0
    with pytest.raises(InputError, match="do not read it"):
        mw.plan(asked, offload=True)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"workload": {"kind": "serve"}}, "serving"),
        ({"workload": {"kind": "fusion"}}, "diffusion"),
        ({"layout": {"ring": 2}}, "'layout' of images or videos by diffusion"),
        ({"shards": {}}, "'shards' of a batch of a recommendation model"),
        ({"deployment": {}}, "'workload' of a training step, 'deployment' of serving"),
        ({"roles": {}}, "'roles' of a step of post-training"),
        ({**SERVE, "plan": {"tensor": 8}}, "'workload.kind: serving' of serving, 'plan' of a training step"),
        ({**SERVE, "run": {"days": 3}}, "'run' of a run of weeks"),
    ],
)
def test_no_kind_or_two_kinds_are_refused(changes, told):
    with pytest.raises(InputError) as caught:
        mw.simulate({**STEP, **changes})
    assert told in str(caught.value)


def test_a_run_on_groups_names_both_kinds():
    data, *rest = _of("mixed-llama3-70b")
    with pytest.raises(InputError, match=r"'run' of a run of weeks, 'cluster.groups' of a step on groups"):
        kind_of({**data, "run": {"days": 3}}, *rest)
