"""The search of post-training: limits in which it is one schedule, and what more freedom may not cost."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import meshwright as mw
from core.errors import InputError
from planner.rl import RlSearch, search_rl

QUESTION = {
    "title": "small",
    "model": "llama3.2-1b",
    "cluster": "dgx-h100",
    "gpus": 16,
    "workload": {
        "kind": "rl",
        "algorithm": "grpo",
        "prompts": 16,
        "samples": 8,
        "mini_batch": 64,
        "input": 100,
        "output": {"kind": "lognormal", "median": 400, "sigma": 0.5, "most": 1000},
    },
}


@cache
def ranked(staleness: float) -> RlSearch:
    return search_rl(QUESTION, "test", Path(), staleness, 20)


@pytest.mark.slow
def test_on_policy_plans_share_all_devices():
    assert {plan.data["schedule"]["kind"] for plan in ranked(0).plans} == {"synchronous"}


@pytest.mark.slow
def test_older_answers_never_cost_answers():
    best = [ranked(staleness).plans[0].answers_per_s for staleness in (0, 1, 4)]
    assert best == sorted(best)


def test_the_first_plan_trains_on_more_answers_than_defaults_do():
    own = mw.simulate(QUESTION).to_dict()
    assert ranked(0).plans[0].step.timing.seconds <= own["step_time_s"]


def test_roles_apart_hold_all_devices_and_plans_run_as_saved():
    apart = next(plan for plan in ranked(1).plans if plan.data["schedule"].get("split"))
    assert sum(apart.data["schedule"]["split"].values()) == 16
    again = mw.simulate(dict(apart.data)).to_dict()
    assert again["step_time_s"] == apart.step.timing.seconds


def test_a_node_more_is_told_for_each_role():
    first, more = ranked(1).plans[0], ranked(1).more
    roles = {"train", "generate"} if first.data["schedule"].get("split") else {"all"}
    assert set(more) - {"fp8"} <= roles


@pytest.mark.slow
def test_the_api_ranks_and_refuses():
    ranking = mw.plan(QUESTION, staleness=0, top=2)
    assert [plan["rank"] for plan in ranking.to_dict()["plans"]] == [1, 2]
    with pytest.raises(InputError, match="0 to 1,000 steps"):
        mw.plan(QUESTION, staleness=-1)


@pytest.mark.slow
def test_a_layout_that_the_rows_of_a_step_forbid_is_passed_over():
    """The training search's first plan interleaves stages; micro batches of a step are no multiple of them.

    The model does not fit the rollout engine's default degree either.
    """
    output = {"kind": "lognormal", "median": 1760, "sigma": 0.5, "most": 3946}
    work = {**QUESTION["workload"], "prompts": 64, "samples": 32, "mini_batch": 512, "input": 150}
    changed = {"model": "qwen3-32b", "gpus": 32, "framework": "nemo-rl"}
    question = {**QUESTION, **changed, "workload": {**work, "output": output, "seq_len": 4096}}
    assert search_rl(question, "test", Path(), 0, 1).plans


def test_a_trainer_that_fits_no_device_keeps_its_optimizer_on_the_host_as_its_release_does():
    small = {**QUESTION["workload"], "prompts": 2, "mini_batch": 16, "output": 64}
    plan = search_rl(QUESTION | {"model": "qwen3-14b", "gpus": 2, "workload": small}, "test", Path(), 0, 1)
    step = plan.plans[0].step
    assert step.setting.plan.place.optimizer.host > 0
    assert step.setting.plan.update.master_on_device
    assert step.memory.fits
