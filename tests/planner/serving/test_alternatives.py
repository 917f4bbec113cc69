"""Deployments shown: the best one, and launches that differ from it in the levers they need."""

from __future__ import annotations

import pytest

from meshwright.questions.serving import serving_question
from planner.serving.alternatives import FIRST, NEXT, PLAIN, PROVEN
from planner.serving.preferred import Measured
from planner.serving.search import search_serving

GIVEN = {
    "model": "deepseek-v3",
    "cluster": "dgx-h200",
    "gpus": 16,
    "isl": 1000,
    "osl": 500,
    "rate": None,
    "ttft": 3.0,
    "tpot": 0.06,
    "share": None,
    "engine": "sglang",
    "objective": None,
}


def levers(plan):
    pools = [group.shape.pool for group in plan.groups]
    return (
        any(pool.speculation for pool in pools),
        any(pool.data > 1 for pool in pools),
        any(pool.pipeline > 1 for pool in pools),
        len(pools) > 1,
    )


@pytest.fixture(scope="module")
def found():
    asked = serving_question(None, GIVEN, {}, {})
    return search_serving(asked, top=5, measured=Measured(lambda shape: shape.describe() == "TP8 PP2 fp8"))


@pytest.mark.slow
def test_best_first_and_every_reason_holds(found):
    """A set of levers is a strict part of the first's; the plainest has none.

    The first choice may be plainer than the best figure, and is as good within its error.
    """
    assert found.reasons[0] == FIRST
    others = [plan.goodput for plan in found.plans[1:]]
    assert others == sorted(others, reverse=True)
    assert found.plans[0].goodput > 0.9 * max(others)
    told = dict(zip(found.reasons, found.plans, strict=True))
    first = levers(found.plans[0])
    assert any(first)
    assert not any(levers(told[PLAIN]))
    for why, plan in told.items():
        if why.startswith("without"):
            own = levers(plan)
            assert own != first
            assert all(mine <= its for mine, its in zip(own, first, strict=True))


@pytest.mark.slow
def test_most_measured_layout_is_shown(found):
    """Wherever it ranks."""
    assert (
        dict(zip(found.reasons, found.plans, strict=True))[PROVEN].groups[0].shape.describe() == "TP8 PP2 fp8"
    )


def test_each_layout_once(found):
    """Five deployments differ in more than their counts."""
    assert len({plan.describe() for plan in found.plans}) == len(found.plans) == 5


@pytest.fixture(scope="module")
def dense():
    given = GIVEN | {"model": "llama3.1-8b", "gpus": 2, "engine": "vllm"}
    return search_serving(serving_question(None, given, {}, {}), top=3)


def test_without_levers_the_ranking_is_shown(dense):
    """A dense model on one GPU: the first is the plainest and the smallest; the others follow the ranking."""
    assert dense.reasons[0] == FIRST
    assert not any(levers(dense.plans[0]))
    assert set(dense.reasons[1:]) == {NEXT}


def test_one_plan_asked_is_the_best(dense):
    """``top=1`` returns the first row alone."""
    plans = search_serving(dense.question, top=1).plans
    assert [plan.describe() for plan in plans] == [dense.plans[0].describe()]
