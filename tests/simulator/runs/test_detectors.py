"""What a detector of stragglers must find: held to runs with and without eviction."""

import math
from dataclasses import replace

import pytest

from simulator.faults import Exposed, Faults
from simulator.runs.detectors import detector_values
from simulator.runs.inputs import RunInputs, Slow
from simulator.runs.question import TimedStraggler
from simulator.runs.recovery import Recovery
from simulator.runs.result import simulate_run

HOUR = 3600.0


def run_of(factor, lasts, stall=300.0):
    slow = Slow(HOUR, HOUR + lasts, factor, straggler=0)
    return RunInputs(
        job=Exposed(16, 8),
        faults=Faults("none", ()),
        recovery=Recovery.model_validate({}),
        steps=100_000,
        step_s=1.0,
        stall_s=stall,
        slow=(slow,),
    )


def straggler(lasts, **extra):
    return TimedStraggler.model_validate(
        {"stage": 0, "slowdown": 1.5, "from": HOUR, "until": HOUR + lasts, **extra}
    )


@pytest.mark.parametrize("factor", [1.02, 1.1, 1.5])
@pytest.mark.parametrize("lasts", [0.5 * HOUR, 5 * HOUR])
def test_what_an_eviction_saves_is_what_the_simulated_run_gains(factor, lasts):
    """Of two runs, one evicts at once: it costs a save and gains the time that steps would have lost."""
    inputs = run_of(factor, lasts)
    (value,) = detector_values(inputs, [straggler(lasts)])
    kept = simulate_run(inputs, 1, 0).mean_s
    gone = replace(inputs, slow=(Slow(HOUR, HOUR, factor, evicted=True, straggler=0),))
    evicted = simulate_run(gone, 1, 0).mean_s
    assert kept - evicted == pytest.approx(value.saves_s, rel=0.02, abs=1.0)


def test_bounds_are_where_nothing_is_gained():
    (value,) = detector_values(run_of(1.1, 2 * HOUR), [straggler(2 * HOUR)])
    (least,) = detector_values(run_of(value.least_factor, 2 * HOUR), [straggler(2 * HOUR)])
    assert least.saves_s == pytest.approx(0, abs=1e-6)
    (shortest,) = detector_values(run_of(1.1, value.least_lasts_s), [straggler(value.least_lasts_s)])
    assert shortest.saves_s == pytest.approx(0, abs=1e-6)


def test_a_straggler_shorter_than_a_restart_never_pays():
    (value,) = detector_values(run_of(1.5, 200.0), [straggler(200.0)])
    assert math.isinf(value.least_factor) and value.saves_s < 0
