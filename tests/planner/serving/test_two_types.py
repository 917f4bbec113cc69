"""Prefill and decode pools on GPU types of their own: availability, prices, power, links, engine runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshwright as mw
from core.errors import InfeasibleError, InputError, UnknownNameError
from planner.serving.deployment import scenario_of
from planner.serving.engine_run import trial_run
from planner.serving.refine import bisect, settled
from planner.serving.replica_cases import CLOSE
from planner.serving.scored_deployments import BUSY_LINK, linked, scores
from planner.serving.shapes import shapes
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

LOAD = {"model": "llama3.1-8b", "isl": 2000, "osl": 200, "ttft": 0.5, "tpot": 0.015}
SMALL = {"tensor": 2, "pipeline": 1}
BOTH = "dgx-h100=2,dgx-a100-80gb=4"
AVAILABLE = {"h100-sxm": 2, "a100-sxm-80gb": 4}


def search(cluster=BOTH, limit=SMALL, **more):
    return mw.deploy(cluster=cluster, limit=limit, top=20, refine=0, **{**LOAD, **more}).search


@pytest.fixture(scope="module")
def found():
    return search()


@pytest.fixture(scope="module")
def table(found):
    question = found.question
    return scores(question, [shape for one in question.types for shape in shapes(question.at(one), {})])


def types_of(plan):
    return tuple(group.shape.offer.name for group in plan.groups)


def test_every_pair_of_types_is_a_candidate(table):
    pairs = {types_of(table.plan(int(index))) for index in np.flatnonzero(table.second >= 0)}
    names = ("h100-sxm", "a100-sxm-80gb")
    assert pairs == {(first, second) for first in names for second in names}
    assert {types_of(table.plan(int(index))) for index in np.flatnonzero(table.second < 0)} == {
        (name,) for name in names
    }


def test_a_type_more_never_carries_less(found):
    best = found.plans[0].goodput
    alone = [search(name).plans[0].goodput for name in BOTH.split(",")]
    assert set(types_of(found.plans[0])) == {"h100-sxm", "a100-sxm-80gb"}
    assert best > 1.05 * max(alone)


def test_one_type_on_offer_is_a_search_on_its_cluster():
    named, plain = search("dgx-h100=2"), search("dgx-h100", gpus=2)
    assert [plan.describe() for plan in named.plans] == [plan.describe() for plan in plain.plans]
    assert [plan.goodput for plan in named.plans] == [plan.goodput for plan in plain.plans]


def test_devices_of_each_type_and_of_all_hold():
    for more, most in (({}, 6), ({"gpus": 3}, 3)):
        for plan in search(**more).plans:
            assert plan.devices <= most
            for name in set(types_of(plan)):
                used = sum(group.devices for group in plan.groups if group.shape.offer.name == name)
                assert used <= AVAILABLE[name]


def test_a_spot_price_changes_which_type_is_cheapest():
    asked = {"objective": "cost", "rate": 3.0}
    h100 = search("dgx-h100=4@1,dgx-a100-80gb=4@9", **asked).plans[0]
    a100 = search("dgx-h100=4@9,dgx-a100-80gb=4@1", **asked).plans[0]
    assert set(types_of(h100)) == {"h100-sxm"}
    assert set(types_of(a100)) == {"a100-sxm-80gb"}
    assert h100.usd_per_hour == pytest.approx(h100.devices)


def test_a_power_budget_holds_and_costs_goodput(found):
    free = found.plans[0]
    short = search(watts=0.6 * free.watts).plans
    assert short and all(plan.watts <= 0.6 * free.watts for plan in short)
    assert short[0].goodput < free.goodput
    with pytest.raises(InfeasibleError, match="within 10 W"):
        search(watts=10.0)


def test_a_narrow_link_between_the_types_limits_the_pools():
    plain = mw.deploy(cluster=BOTH, limit=SMALL, top=1, refine=0, **LOAD).search.question
    first, second = plain.types
    narrow = first.cluster.with_network(80.0)
    wide = scores(plain, [shape for one in plain.types for shape in shapes(plain.at(one), {})])
    slow = [type(first)(narrow, first.available, first.usd_per_hour), second]
    tight = scores(plain, [shape for one in slow for shape in shapes(plain.at(one), {})])
    across = [
        table.goodput[
            [i for i in range(len(table)) if len(set(types_of(table.plan(i)))) == 2 and table.goodput[i] > 0]
        ].max()
        for table in (wide, tight)
    ]
    assert across[1] < 0.7 * across[0]
    # 2,000 tokens of 131 kB at an eighth of 10 GB/s take 0.2 s.
    for prefill in tight.prefill:
        for decode in tight.decode:
            if (
                len(linked(prefill, [decode], plain.devices))
                and prefill.shape.offer.name != decode.shape.offer.name
            ):
                assert prefill.sending_s == pytest.approx(
                    2000 * prefill.shape.kv_token_bytes / prefill.bandwidth
                )
                assert prefill.rate[0] * prefill.sending_s < 1
    assert across[1] <= BUSY_LINK * 4 / min(
        phase.sending_s for phase in tight.prefill if phase.bandwidth < 5e9
    )


def test_the_found_deployment_runs_on_its_clusters(found):
    plan = next(plan for plan in found.plans if len(set(types_of(plan))) == 2)
    data = scenario_of(found.question, plan, rate=0.7 * plan.goodput)
    result = serve(make_serving(data, "found", Path())).to_dict()
    assert [pool["device"] for pool in result["pools"]] == list(types_of(plan))
    assert result["tpot_s"]["mean"] < LOAD["tpot"]
    assert result["ttft_s"]["p90"] < LOAD["ttft"]


def test_a_saved_deployment_on_two_types_is_planned_again_on_both(found):
    plan = next(plan for plan in found.plans if len(set(types_of(plan))) == 2)
    again = mw.deploy(scenario_of(found.question, plan), limit=SMALL, refine=0).search
    assert [offer.name for offer in again.question.types] == list(types_of(plan))
    held = dict.fromkeys(types_of(plan), 0)
    for group in plan.groups:
        held[group.shape.offer.name] += group.devices
    assert {offer.name: offer.devices for offer in again.question.types} == held


@pytest.mark.parametrize(
    ("cluster", "more", "error", "words"),
    [
        ("dgx-h100=2,dgx-h100=4", {}, InputError, "h100-sxm is given twice"),
        ("dgx-h100,dgx-a100-80gb=2", {}, InputError, "write how many devices are available: dgx-h100=COUNT"),
        ("dgx-h100=2,dgx-a10-80gb=2", {}, UnknownNameError, "dgx-a10-80gb'; did you mean 'dgx-a100-80gb'"),
        ("dgx-h100=x,dgx-a100-80gb=2", {}, InputError, "must be NAME"),
        ("dgx-h100=9999999,dgx-a100-80gb=2", {}, InputError, "devices, asked for 9,999,999"),
    ],
)
def test_wrong_types_are_named(cluster, more, error, words):
    with pytest.raises(error, match=words):
        search(cluster, **more)


@pytest.mark.slow
def test_a_grid_search_over_the_event_engine_has_the_same_winner(found, table):
    """Every count of every shape on both types, mixed or in two pools, runs on the event engine: none carries
    more by over 3 % than the best of those that the steady state does not tell apart from the first."""

    def run_of(plan):
        setting = make_serving(scenario_of(found.question, plan), "plan", Path())
        return settled(setting, plan.goodput * (LOAD["ttft"] + LOAD["tpot"] * LOAD["osl"]))

    best = found.plans[0].goodput
    tied = [plan for plan in found.plans if plan.goodput > best * (1.0 - CLOSE)]
    rate = max(bisect(run_of(plan), plan.goodput, None) for plan in tied) / 0.97
    plans = [table.plan(int(index)) for index in np.flatnonzero(table.goodput > 0)]
    assert [plan.describe() for plan in plans if trial_run(run_of(plan), rate, None).holds] == []


def test_fronts_and_days_are_of_one_type():
    given = {"model": "llama3.1-8b", "isl": 1000, "osl": 200}
    with pytest.raises(InputError, match="a front is of one GPU type"):
        mw.serving_front(cluster=BOTH, **given)
    with pytest.raises(InputError, match="a day is of one GPU type"):
        mw.day(rates=[1.0, 2.0], cluster=BOTH, ttft=0.5, tpot=0.03, **given)
    spot, _ = mw.day(rates=[1.0], cluster="dgx-h100=1@2", ttft=0.5, tpot=0.03, **given)
    assert spot.fixed_usd == pytest.approx(48.0)
