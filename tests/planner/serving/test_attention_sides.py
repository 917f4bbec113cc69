"""Attention-FFN disaggregation: time of a step of micro batches, its search, refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshwright as mw
from core.errors import InfeasibleError, InputError
from planner.serving.alternatives import BESIDE
from planner.serving.preferred import mechanisms
from planner.serving.replica_cases import ReplicaCases
from simulator.serving.kv_states.attention_ffn import turn_s
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

ASKED = {
    "model": "mixtral-8x7b",
    "cluster": "dgx-h100",
    "gpus": 8,
    "isl": 1000,
    "osl": 200,
    "ttft": 1.0,
    "tpot": 0.06,
    "pools": "attention",
}
HELD = {"tensor": 2, "expert": 2, "attention_ratio": "1:1", "micro_batches": 3}


@pytest.fixture(scope="module")
def held():
    return mw.deploy(**ASKED, fix=HELD, refine=0, top=3)


def one_after_the_other(batches, here, there, link, layers=400):
    """Seconds a step by a queue of micro batches at FFN, link, attention and link, layer after layer."""
    ready, free = [0.0] * batches, [0.0] * 4
    for _ in range(layers):
        for batch in range(batches):
            at = ready[batch]
            for place, seconds in enumerate((here, link, there, link)):
                at = free[place] = max(at, free[place]) + seconds
            ready[batch] = at
    return max(ready) / layers


@pytest.mark.parametrize("batches", [2, 3, 4])
@pytest.mark.parametrize(("here", "there", "link"), [(1, 1, 0.1), (1, 1, 0.9), (3, 1, 0.2), (1, 2, 2.5)])
def test_a_step_takes_what_a_queue_of_micro_batches_takes(batches, here, there, link):
    found = turn_s(batches, here, there, 2.0 * link, 0.0)
    assert found == pytest.approx(one_after_the_other(batches, here, there, link), rel=0.02)
    # MegaScale-Infer, equation 3: enough micro batches hide the links where both sides take equally long.
    if here == there and batches >= 2 * (1 + link / here):
        assert found == batches * here


def test_array_and_scalar_steps_agree(held):
    """The steady state's decode step is the event engine's, where micro batches are whole."""
    group = held.best.groups[1]
    setting = make_serving(held.scenario(), "plan", Path())
    steps = setting.pools[1].costs.steps
    case = ReplicaCases.of_group(held.search.question, group)
    arrays = case.steps.steps.cases(case.shape)
    for decodes in (12, 96, 384):
        at_once = arrays.decode_seconds(np.array([float(decodes)]), np.array([1100.0])).item()
        step = steps.step((), decodes, 1100 * decodes)
        assert at_once == pytest.approx(step, rel=0.01)
        assert sum(steps.parts((), decodes, 1100 * decodes).values()) == pytest.approx(step)


def test_the_plan_runs_as_found(held):
    """Devices of both sides count, and the engine carries nine tenths of the rate within the targets."""
    plan = held.best
    assert "attention-FFN disaggregation" in mechanisms(plan)
    side = plan.groups[1].shape.attention
    assert side is not None
    assert plan.devices == sum(group.shape.pool.devices * group.replicas for group in plan.groups) + (
        side.devices * plan.groups[1].replicas
    )
    scenario = held.scenario()
    assert [pool["role"] for pool in scenario["deployment"]["pools"]] == ["prefill", "decode", "attention"]
    scenario["workload"] |= {"arrivals": {"kind": "poisson", "rate": 0.9 * plan.goodput}, "requests": 1500}
    run = serve(make_serving(scenario, "plan", Path()))
    assert run.setting.gpus == plan.devices
    assert run.metrics.slo_share > 0.9
    described = held.to_dict()["deployments"][0]["pools"][1]["attention"]
    assert described["ratio"] == "1:1"
    assert described["micro_batches"] == 3


@pytest.mark.slow
def test_a_measured_layout_goes_first_and_the_pool_is_shown():
    found = mw.deploy(**ASKED, refine=0, limit={"pipeline": 1})
    assert not mechanisms(found.best)
    why = dict(zip(found.search.reasons, found.search.plans, strict=True))
    assert "attention-FFN disaggregation" in mechanisms(why[BESIDE])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"pools": "ffn"}, "attention"),
        ({"fix": {"attention_ratio": "0:1"}}, "no attention devices"),
        ({"fix": {"attention_ratio": "1:0"}}, "no FFN devices"),
        ({"fix": {"attention_ratio": "half"}}, "A:F"),
        ({"fix": {"micro_batches": 1}}, "from 2 to 16"),
        ({"limit": {"attention_ratio": "1:1"}}, "no order"),
        ({"pools": None, "fix": {"micro_batches": 2}}, "--pools attention"),
        ({"split": False}, "--together"),
        ({"osl": 1}, "one output token"),
    ],
)
def test_pools_that_cannot_be_are_refused(change, says):
    with pytest.raises(InputError, match=says):
        mw.deploy(**ASKED | {"refine": 0} | change)


@pytest.mark.slow
def test_a_ratio_that_leaves_part_of_a_device_fits_nothing():
    with pytest.raises(InfeasibleError, match="whole devices"):
        mw.deploy(**ASKED, fix={"attention_ratio": "1:16"}, refine=0)
