"""Rows of two pools, against loops over phases and counts."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

import meshwright as mw
from planner.serving.scored_deployments import BUSY_LINK, linked, scores
from planner.serving.shapes import shapes
from simulator.serving.state.route import Route


def test_rows_of_two_pools_are_every_pair_of_counts():
    """Each once, in the order of pools and counts, where both fit the devices of a type and of all."""
    question = mw.deploy(
        model="llama3.1-8b",
        cluster="dgx-h100=2,dgx-a100-80gb=4",
        limit={"tensor": 2, "pipeline": 1},
        isl=2000,
        osl=200,
        ttft=0.5,
        tpot=0.015,
        refine=0,
    ).search.question
    table = scores(
        question, [shape for one in question.types for shape in shapes(question.at(one), Counter())]
    )
    rows = [
        (first, second, before, after)
        for first, prefill in enumerate(table.prefill)
        for second, decode in enumerate(table.decode)
        if len(linked(prefill, [decode], question.devices))
        for before in range(1, len(prefill.ttft) + 1)
        for after in range(1, len(decode.ttft) + 1)
        if before * prefill.shape.devices + after * decode.shape.devices
        <= min(
            question.devices,
            prefill.shape.offer.devices if prefill.shape.offer.name == decode.shape.offer.name else 1e9,
        )
    ]
    apart = table.second >= 0
    found = zip(table.first[apart], table.second[apart], *table.replicas[:, apart], strict=True)
    assert [tuple(map(int, row)) for row in found] == rows
    index = int(np.flatnonzero(apart)[len(rows) // 3])
    first, second, before, after = rows[len(rows) // 3]
    prefill, decode = table.prefill[first], table.decode[second]
    most = min(before * prefill.rate[before - 1], after * decode.rate[after - 1])
    assert table.goodput[index] == min(most, BUSY_LINK * after / prefill.sending_s)
    assert table.watts[index] == prefill.watts[before - 1] + decode.watts[after - 1]


def test_a_link_is_as_wide_as_its_narrower_end():
    """Every pair has the route that the event engine takes between its replicas."""
    question = mw.deploy(
        model="llama3.1-8b",
        cluster="l40s-8",
        gpus=8,
        limit={"tensor": 4, "pipeline": 1},
        isl=2000,
        osl=100,
        ttft=1,
        refine=0,
    ).search.question
    kinds = list(shapes(question.at(question.types[0]), Counter()))
    one, _, four = (next(kind for kind in kinds if kind.devices == count) for count in (1, 2, 4))
    cluster = four.offer.cluster

    assert four.link_to(one, 8) == Route.between(cluster, 0, 4, 7, 1).bandwidth
    assert four.link_to(one, 8) < four.link_to(four, 8)
    assert one.link_to(four, 8) == one.link_to(one, 8)
    table = scores(question, kinds)
    paired = {(prefill.shape.devices, prefill.bandwidth) for prefill in table.prefill}
    assert paired >= {(4, four.link_to(one, 8)), (4, four.link_to(four, 8))}
    for prefill in table.prefill:
        for at in linked(prefill, table.decode, question.devices):
            assert prefill.shape.link_to(table.decode[at].shape, question.devices) == prefill.bandwidth


SHORT = {"input": 100, "output": 20, "slo": {"ttft": 0.5, "share": 0.9}}
LONG = {"input": 1000, "output": 300, "slo": {"share": 0.9}}


@pytest.mark.parametrize(
    ("cluster", "gpus", "workload", "target", "pairs"),
    [
        # The move of KV takes 3.7 ms a token of the 19 after the first, decoding 18.
        ("dgx-b200", 4, SHORT, {"tpot": 0.02}, False),
        ("dgx-b200", 4, SHORT, {"tpot": 0.03}, True),
        ("dgx-h100", 8, LONG, {"e2e": 8.0}, True),
    ],
)
def test_two_pools_keep_targets_together(cluster, gpus, workload, target, pairs):
    arrivals = {"kind": "poisson", "rate": 1.0}
    asked = {"title": "pairs", "model": "llama3.1-70b", "cluster": cluster, "gpus": gpus}
    asked["workload"] = {"kind": "serving", "arrivals": arrivals, **workload}
    asked["workload"]["slo"] = {**workload["slo"], **target}
    plans = mw.plan(asked, engine="sglang-0.5.12", objective="goodput", refine=0).search.plans
    assert any(len(plan.groups) == 2 for plan in plans) == pairs
    for plan in plans:
        assert plan.tpot_s <= target.get("tpot", plan.tpot_s)
        assert plan.e2e_s <= target.get("e2e", plan.e2e_s)
