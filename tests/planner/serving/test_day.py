"""Replicas over a day: the least replica seconds by exhaustion, the timetable on the event engine, errors."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import meshwright as mw
from core.errors import InfeasibleError, InputError
from planner.serving.day import replica_seconds, run_day
from simulator.serving.workload.arrivals.piecewise import Piecewise

GIVEN = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 8, "isl": 1000, "osl": 100}
TARGETS = {"ttft": 0.5, "tpot": 0.03}


def exhausted(needed, period, start):
    """Least seconds over every choice of which replicas to hold when."""
    best = np.inf
    for held in product(*(range(count, max(needed) + 1) for count in needed)):
        starts = sum(max(now - before, 0) for before, now in zip((held[-1], *held[:-1]), held, strict=True))
        best = min(best, sum(held) * period + starts * start)
    return best


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=5), st.floats(1.0, 40.0), st.floats(0.0, 90.0))
def test_replica_seconds_are_the_least(needed, period, start):
    if not any(needed):
        needed = [*needed, 1]
    found = replica_seconds(np.array(needed), period, start)
    assert found == pytest.approx(exhausted(needed, period, start))


def test_a_timetable_costs_what_the_engine_holds_and_meets_the_targets():
    found, runs = mw.day(**GIVEN, **TARGETS, rates=[5, 40, 12], cold_start=4.0, fix={"tensor": "1"})
    assert not runs
    assert found.timetable_usd < found.fixed_usd
    short = Piecewise(period=40.0, rates=found.arrivals.rates)
    workload = found.question.workload.model_copy(update={"arrivals": short})
    found = replace(found, question=replace(found.question, workload=workload))
    ran = {run.scaler: run for run in run_day(found)}
    assert ran["scheduled"].usd == pytest.approx(found.timetable_usd, rel=0.2)
    assert ran["fixed"].usd == pytest.approx(found.fixed_usd, rel=0.02)
    assert ran["scheduled"].usd < ran["fixed"].usd
    assert ran["fixed"].slo_share >= ran["scheduled"].slo_share > 0.8
    assert ran["reactive"].slo_share <= ran["scheduled"].slo_share


def test_what_a_day_cannot_be():
    with pytest.raises(InfeasibleError, match="devices, 1 are there"):
        mw.day(**{**GIVEN, "gpus": 1}, **TARGETS, rates=[500.0])
    with pytest.raises(InfeasibleError, match="meets the targets"):
        mw.day(**GIVEN, tpot=1e-4, rates=[1.0])
    with pytest.raises(InputError, match="needs a target"):
        mw.day(**GIVEN, rates=[1.0])
    for start in (float("inf"), float("nan")):
        with pytest.raises(InputError, match="cold start: must be from 0 to 86,400 s"):
            mw.day(**GIVEN, **TARGETS, rates=[1.0], cold_start=start)
