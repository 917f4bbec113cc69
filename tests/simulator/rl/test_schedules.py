"""When the roles of a step work: identities of schedules."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.rl.schedules.asynchronous import RolloutsAhead
from simulator.rl.schedules.base import PHASES, Phases
from simulator.rl.schedules.one_step_off import OneStepOff
from simulator.rl.schedules.partial import PartialRollouts
from simulator.rl.schedules.repacked import TailRepacked
from simulator.rl.schedules.streaming import MiniBatchesStreamed
from simulator.rl.schedules.synchronous import PhasesInTurn
from tests.simulator.rl.phases import SPLIT, phases


@given(phases())
def test_synchronous_is_the_sum_of_phases(step):
    parts = (step.generation, step.scoring, step.update, step.weights, step.state, step.host)
    assert PhasesInTurn().timing(step).seconds == pytest.approx(sum(parts))


@given(phases())
def test_no_staleness_is_synchronous(step):
    fresh = RolloutsAhead(split=SPLIT, staleness=0.0).timing(step)
    assert fresh.seconds == pytest.approx(PhasesInTurn(split=SPLIT).timing(step).seconds)


@given(phases())
def test_an_infinite_queue_is_the_slower_role(step):
    slower = max(step.busy_generation, step.training + step.host)
    assert RolloutsAhead(split=SPLIT, staleness=1000.0).timing(step).seconds == pytest.approx(
        slower + step.weights, rel=2e-2, abs=step.generation / 1000
    )


@given(phases(), st.floats(0, 10), st.floats(0, 10))
def test_older_weights_never_take_longer(step, less, more):
    less, more = sorted((less, more))
    times = [RolloutsAhead(split=SPLIT, staleness=each).timing(step).seconds for each in (less, more)]
    assert times[1] <= times[0] * (1 + 1e-12)


@given(phases())
def test_one_step_off_is_a_staleness_of_one(step):
    both = OneStepOff(split=SPLIT), RolloutsAhead(split=SPLIT, staleness=1.0)
    assert len({schedule.timing(step).seconds for schedule in both}) == 1


@given(phases())
def test_the_phase_that_decides_is_of_the_slower_role(step):
    timing = RolloutsAhead(split=SPLIT, staleness=1.0).timing(step)
    assert (timing.binding == "generation") == (step.generation >= step.training + step.host)
    assert PhasesInTurn().timing(step).binding in PHASES


@given(phases())
def test_idle_shares_are_shares_and_a_role_that_waits_for_nobody_is_not_idle(step):
    timing = RolloutsAhead(split=SPLIT, staleness=1000.0).timing(step)
    assert all(-1e-9 <= share <= 1 for share in timing.idle.values())
    alone = Phases(step.generation, step.busy_generation, 1000.0, 1e5, 0.0, 0.0, 0.0)
    assert RolloutsAhead(split=SPLIT, staleness=1000.0).timing(alone).idle["train"] == pytest.approx(0.0)


@given(phases(), st.floats(0.05, 3))
def test_partial_rollouts_hide_at_most_the_drain(step, extra):
    whole = PhasesInTurn().timing(step).seconds
    partial = PartialRollouts(extra=extra).timing(step).seconds
    assert whole - (step.generation - step.busy_generation) <= partial * (1 + 1e-12)
    assert partial <= whole


@given(phases(), st.floats(0, 100))
def test_computing_kv_again_costs_what_it_takes_and_never_more_than_the_drain(step, resume):
    again = replace(step, resume=resume)
    kept, repeated = (PartialRollouts(extra=1.0).timing(each).seconds for each in (step, again))
    assert kept <= repeated <= PhasesInTurn().timing(step).seconds * (1 + 1e-12)


@given(phases(), st.integers(1, 64))
def test_streaming_is_between_the_slower_role_and_phases_in_turn(step, batches):
    step = replace(step, batches=batches)
    seconds = MiniBatchesStreamed(split=SPLIT).timing(step).seconds
    assert max(step.generation, step.training) <= seconds
    assert seconds <= PhasesInTurn(split=SPLIT).timing(step).seconds * (1 + 1e-12)


@given(phases())
def test_one_mini_batch_streams_nothing(step):
    alone = replace(step, state=0.0)
    streamed = MiniBatchesStreamed(split=SPLIT).timing(alone).seconds
    assert streamed == pytest.approx(PhasesInTurn(split=SPLIT).timing(alone).seconds)


@given(phases())
def test_answers_that_finish_first_take_longest(step):
    def seconds(running):
        return RolloutsAhead(split=SPLIT, staleness=4.0, running=running).timing(step).seconds

    assert seconds("keep") <= seconds("recompute") <= seconds("finish") * (1 + 1e-12)


@given(phases())
def test_a_repacked_tail_hides_forward_passes_only(step):
    hidden = PhasesInTurn().timing(step).seconds - TailRepacked().timing(step).seconds
    assert -1e-9 <= hidden <= min(step.scoring, step.generation) * (1 + 1e-9) + 1e-9
