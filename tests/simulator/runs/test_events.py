"""The event simulation of runs: conservation, agreement with closed forms, common random numbers."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.loading import build
from simulator.faults import Exposed, read_faults
from simulator.runs.closed_form import effective, elastic
from simulator.runs.events import replicate
from simulator.runs.inputs import Dropped, RunInputs, SavedAt, Slow
from simulator.runs.recovery import Recovery
from simulator.runs.result import simulate_run

NONE = read_faults(None, "test", Path())
JOB = Exposed(2048, 8)
HOUR = 3600.0


def faults_every(seconds: float, **changed):
    single = {"kind": "exponential", "mtbf": seconds, "of": "job", **changed}
    return read_faults(single, "test", Path())


def recovery_of(seconds: float) -> Recovery:
    part = seconds / 4
    stages = {"detect": part, "locate": 0.0, "replace": part, "initialise": part, "load": part}
    return build(Recovery, stages, "test")


def a_run(mtbf=7200.0, recovery=600.0, period=1200.0, stall=60.0, days=10.0, **changed) -> RunInputs:
    tier = SavedAt("remote", 1, stall, math.inf, 0.0)
    steps = int(days * 86400 / 2.0)
    stages = recovery if isinstance(recovery, Recovery) else recovery_of(recovery)
    inputs = RunInputs(JOB, faults_every(mtbf), stages, steps, 2.0, period, stall, (tier,))
    return replace(inputs, **changed)


def test_a_run_without_faults_and_checkpoints_is_its_steps():
    inputs = RunInputs(JOB, NONE, Recovery(), 123_457, 3.3)
    assert replicate(inputs, 0).wall_s == pytest.approx(123_457 * 3.3, rel=1e-9)


def test_saves_without_faults_cost_one_stall_a_period():
    inputs = replace(a_run(), faults=NONE, steps=6000, period_s=1200.0, stall_s=60.0)
    assert replicate(inputs, 0).wall_s == pytest.approx(12_000 + 9 * 60)


@settings(max_examples=30, deadline=None)
@given(
    mtbf=st.floats(2000, 1e6),
    recovery=st.floats(0, 1500),
    period=st.floats(50, 5000),
    stall=st.floats(0, 100),
    late=st.floats(0, 500),
    spares=st.integers(0, 4),
    seed=st.integers(0, 1000),
)
def test_states_add_up_to_the_wall_time(mtbf, recovery, period, stall, late, spares, seed):
    tiers = (SavedAt("host", 1, stall, 0.0, 5.0), SavedAt("remote", 3, stall + late, math.inf, 30.0))
    slow = (Slow(4 * HOUR, 8 * HOUR, 1.2), Slow(6 * HOUR, 12 * HOUR, 1.1, evicted=True))
    inputs = replace(
        a_run(mtbf, recovery, period, stall, 0.6), tiers=tiers, spares=spares, waits=True, slow=slow
    )
    found = replicate(inputs, seed, traced=True)
    assert sum(found.seconds.values()) == pytest.approx(found.wall_s, rel=1e-9)
    assert min(found.seconds.values()) >= -1e-6
    assert sum(end - start for _, start, end in found.segments) == pytest.approx(found.wall_s, rel=1e-9)
    assert found.seconds["productive"] == pytest.approx(inputs.work_s) or not found.done


@pytest.mark.parametrize(
    ("mtbf", "recovery", "period", "stall"),
    [(7200, 600, 1200, 60), (1500, 300, 400, 20), (40_000, 1800, 3600, 300), (7200, 0, 900, 0)],
)
def test_the_exact_law_lies_in_the_confidence_interval(mtbf, recovery, period, stall):
    inputs = a_run(mtbf, recovery, period, stall, days=min(30, mtbf / 240))  # 65 to 360 faults
    outcome = simulate_run(inputs, 60, seed=7)
    exact = float(effective(1 / mtbf, period, stall, recovery))
    assert abs(outcome.goodput - exact) < 1.6 * outcome.goodput_error  # about 3 standard errors
    assert not outcome.assumptions


def test_the_elastic_law_lies_in_the_confidence_interval():
    dropped = Dropped(12, 180.0, 600.0, 0.0)
    inputs = a_run(20_000, 600, 10_000, 5, 60, dropped=dropped)
    outcome = simulate_run(inputs, 40, seed=3)
    law = float(elastic(1 / 20_000, 10_000, 5, 180, 600, 12))
    assert outcome.goodput == pytest.approx(law, abs=0.002)


@pytest.mark.parametrize("seed", range(12))
def test_more_spares_never_slow_a_run(seed):
    """Three nodes in repair at a time: a run without spares takes twenty times as long, and ends."""
    faults = faults_every(20_000, repair={"exponential": 60_000})
    walls = [
        replicate(a_run(faults=faults, spares=spares, waits=True), seed).wall_s
        for spares in (0, 1, 2, 4, 8, 64)
    ]
    assert all(more <= fewer + 1e-6 for fewer, more in pairwise(walls))
    assert walls[-1] < walls[0]


def test_the_same_seed_gives_the_same_bytes():
    assert repr(replicate(a_run(), 5, 2, traced=True)) == repr(replicate(a_run(), 5, 2, traced=True))
    assert repr(replicate(a_run(), 5, 2)) != repr(replicate(a_run(), 5, 3))


def test_saves_in_the_memory_of_a_lost_node_do_not_help():
    """Losing a node returns to the last remote save, a restart in place to the last one in host memory."""
    tiers = (SavedAt("host", 1, 0.0, 0.0, 0.0), SavedAt("remote", 50, 0.0, math.inf, 0.0))
    near, far = (
        simulate_run(
            a_run(7200, 0, 100, 0, 20, faults=faults_every(7200, nodes=nodes), tiers=tiers), 10, 1
        ).seconds["lost work"]
        for nodes in (0, 1)
    )
    assert near < 0.1 * far
    assert far > 100.0


def test_silent_faults_lose_the_work_since_the_fault():
    silent = read_faults({"kind": "silent", "mtbf": 40_000, "of": "job"}, "test", Path())
    loud = faults_every(40_000)
    quick = build(
        Recovery, {"detect": {"after": 10, "checks": 7200}, "replace": 10, "initialise": 10}, "test"
    )
    lost = [
        simulate_run(a_run(faults=faults, recovery=quick, days=20), 10, 1).seconds["lost work"]
        for faults in (silent, loud)
    ]
    assert lost[0] > 2 * lost[1]


def test_a_straggler_costs_its_share_of_its_days():
    inputs = replace(a_run(days=10), faults=NONE, tiers=(), period_s=math.inf, stall_s=0.0)
    slowed = replace(inputs, slow=(Slow(86400.0, 3 * 86400.0, 1.25),))
    found = replicate(slowed, 0)
    assert found.wall_s == pytest.approx(inputs.work_s + 2 * 86400 * (1 - 1 / 1.25))
    assert found.seconds["stragglers"] == pytest.approx(2 * 86400 * 0.2)


def test_a_job_that_outruns_no_fault_is_given_up():
    found = replicate(a_run(mtbf=100.0, recovery=1000.0, period=1000.0, days=0.1), 0)
    assert not found.done


def test_fewer_devices_until_repair():
    faults = faults_every(2 * 86400, repair=86400.0)
    outcome = simulate_run(a_run(faults=faults, shrunk=(0.8, 0.6), days=40, recovery=100), 20, 1)
    assert outcome.seconds["fewer devices"] == pytest.approx(outcome.faults * 86400 * 0.2, rel=0.25)
    assert np.isfinite(outcome.mean_s)
