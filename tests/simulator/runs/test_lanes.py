"""Replications side by side give the bytes of replications alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.loading import build
from simulator.faults import read_faults
from simulator.runs.events import replicate
from simulator.runs.inputs import RunInputs, SavedAt, Slow
from simulator.runs.lanes import FEWEST, replicate_many, restarts_only
from simulator.runs.recovery import Recovery
from tests.simulator.runs.test_events import a_run, faults_every

HOURS = 3600.0


def assert_same(inputs: RunInputs, seed: int = 3, count: int = FEWEST) -> None:
    alone = [replicate(inputs, seed, number) for number in range(5, 5 + count)]
    together = list(replicate_many(inputs, seed, 5, 5 + count))
    for one, other in zip(alone, together, strict=True):
        assert repr(one) == repr(other)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    mtbf=st.floats(9000, 1e6),
    recovery=st.floats(0, 1500),
    period=st.one_of(st.floats(300, 7200), st.just(float("inf"))),
    stall=st.floats(0, 200),
    late=st.floats(0, 2000),
    spares=st.integers(0, 3),
    waits=st.booleans(),
    repair=st.floats(600, 2e5),
)
def test_lanes_are_replications_alone(mtbf, recovery, period, stall, late, spares, waits, repair):
    near = SavedAt("host", 1, stall, 0, 5.0)
    far = SavedAt("remote", 3, stall + late, 10.0, 90.0)
    inputs = a_run(recovery=recovery, period=period, stall=stall, days=1.0, spares=spares, waits=waits)
    faults = faults_every(mtbf, repair={"exponential": repair}, nodes=2)
    inputs = replace(inputs, faults=faults, tiers=() if period == float("inf") else (near, far))
    assert restarts_only(inputs)
    assert_same(inputs)


@pytest.mark.parametrize("notice", ["hang", "silent"])
def test_lanes_take_causes_notices_and_overlapping_stages(notice):
    stages = {
        "detect": {"heartbeat": 10.0, "collective_timeout": 600.0, "checks": 2 * HOURS},
        "replace": {"warm_spare": {"lognormal": {"median": 60.0, "mean": 100.0}}, "in_place": 30.0},
        "initialise": {"exponential": 120.0},
        "overlap": [["replace", "initialise"]],
    }
    faults = read_faults(
        [
            {"kind": "exponential", "mtbf": 9 * HOURS, "of": "job", "name": "gpu", "nodes": 1},
            {"kind": "weibull", "mtbf": 15 * HOURS, "of": "job", "shape": 0.7, "nodes": 1, "notice": notice},
        ],
        "test",
        Path(),
    )
    tiers = (SavedAt("host", 1, 300.0, 0, 5.0), SavedAt("remote", 2, 1500.0, 10.0, 90.0))
    inputs = a_run(
        faults=faults, recovery=build(Recovery, stages, "test"), spares=1, waits=True, tiers=tiers, days=10.0
    )
    assert restarts_only(inputs)
    assert_same(inputs, count=24)


@pytest.mark.parametrize(
    "changed",
    [
        {"slow": (Slow(100.0, 5000.0, 1.5),)},
        {"shrunk": (0.9, 0.8)},
    ],
    ids=["slow", "shrunk"],
)
def test_runs_with_other_events_go_alone(changed):
    inputs = replace(a_run(days=1.0), **changed)
    assert not restarts_only(inputs)
    assert_same(inputs)


def test_lanes_that_outlive_their_faults_are_drawn_again():
    inputs = a_run(mtbf=2400.0, recovery=1200.0, days=0.5)
    assert any(each.wall_s > 1.25 * inputs.work_s for each in replicate_many(inputs, 3, 0, FEWEST))
    assert_same(inputs)
