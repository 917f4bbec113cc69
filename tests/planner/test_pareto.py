"""Pareto fronts: no point beats another, against the quadratic definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import meshwright as mw
from meshwright.pages.fronts import axis_scale
from meshwright.reports.fronts import describe_fronts
from planner.pareto import Axis, Front, front
from planner.training.fronts import training_fronts

costs = arrays(float, (12, 2), elements=st.one_of(st.integers(0, 6).map(float), st.just(np.inf)))


@given(costs)
def test_front_is_what_no_point_beats(points):
    kept = front(points[:, 0], points[:, 1])
    usable = points[np.isfinite(points).all(axis=1)]
    for point in points[kept]:
        beaten = (usable <= point).all(axis=1) & (usable < point).any(axis=1)
        assert not beaten.any()
    for point in usable:
        assert any((points[index] <= point).all() for index in kept)
    assert np.all(np.diff(points[kept, 0]) > 0)
    assert np.all(np.diff(points[kept, 1]) < 0)


def test_more_may_be_better():
    speed = Axis("speed", "speed", np.array([1.0, 2.0, 3.0]), higher=True)
    cost = Axis("cost", "cost", np.array([1.0, 4.0, 3.0]))
    assert list(Front(speed, cost).points) == [2, 0]


def test_fronts_of_serving_hold_the_fastest_and_the_cheapest():
    found = mw.serving_front(
        model="llama3.1-8b", cluster="dgx-h100", gpus=4, isl=500, osl=100, fix={"pipeline": "1"}
    )
    speed = found.fronts[0].x
    assert found.fronts[0].points[0] == np.argmax(speed.values)
    cost = found.fronts[1].y
    assert cost.values[found.fronts[1].points[-1]] == cost.values[np.isfinite(found.fronts[1].x.values)].min()
    told = describe_fronts(found)
    counts = {found.name(int(point)).rpartition(", ")[2] for point in found.fronts[0].points}
    assert "1 request at a time" in counts
    scenario = told["fronts"][0]["points"][-1]["scenario"]
    assert scenario["workload"]["arrivals"]["kind"] == "closed"


def test_fronts_of_training_start_at_the_best_plan():
    asked = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 8, "seq_len": 4096, "global_batch": 64}
    found = mw.plan(**asked, every=True)
    fronts = training_fronts(found.result.setting, found.scored)
    step = fronts.fronts[0].x.values
    first = int(fronts.fronts[0].points[0])
    assert step[first] == step.min()
    again = mw.simulate(fronts.scenario(first))
    assert abs(again.to_dict()["step_time_s"] / step[first] - 1) < 1e-9


def test_a_few_slow_plans_do_not_squeeze_the_others_into_a_corner():
    assert axis_scale(np.array([10.0, 30.0])) == {}
    assert axis_scale(np.array([0.0, 30.0])) == {}
    wide = axis_scale(np.array([14.0, 160.0]))
    assert wide["type"] == "log"
    assert dict(zip(wide["tickvals"], wide["ticktext"], strict=True))[20] == "20"
    assert axis_scale(np.array([1.0, 1e5])) == {"type": "log", "dtick": 1}
