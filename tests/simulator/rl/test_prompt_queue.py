"""Prompts in flight and a trainer that takes them: limits that arithmetic gives."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.rl.prompt_queue import PromptQueue

STEP_S = 0.01
WEIGHTS_S = 0.5


def queue(lengths, in_flight, replicas=2, **changes):
    """Engine steps of equal time, whatever runs."""
    lengths = np.asarray(lengths)
    steps = np.full(lengths.size + 1, STEP_S)
    plain = PromptQueue(lengths, steps, replicas, in_flight, 0.0, 0.0, len(lengths), 1.0)
    return replace(plain, **changes)


def seconds(of, trainer_s, staleness=0.0, pulls=1.0, running="keep"):
    return of.step_seconds(trainer_s, WEIGHTS_S, of.busy_s, staleness, pulls, running)


@pytest.mark.parametrize(("in_flight", "waves"), [(8, 1), (4, 2), (2, 4), (1, 8)])
def test_on_policy_whole_steps_are_waves_of_the_longest_answer_then_the_trainer(in_flight, waves):
    of = queue(np.tile([100, 300, 200], (8, 1)), in_flight)
    assert seconds(of, 5.0) == pytest.approx(waves * 300 * STEP_S + 5.0 + WEIGHTS_S)


def test_the_first_part_waits_for_its_prompts_and_the_last_for_the_longest():
    """Four prompts that end at 1, 2, 3 and 10 s; a part of one takes 2 s: the last one begins at 10 s."""
    of = queue([[100], [200], [300], [1000]], 4)
    assert seconds(of, 8.0, pulls=4.0) == pytest.approx(10 + 2 + WEIGHTS_S)
    assert seconds(of, 40.0, pulls=4.0) == pytest.approx(1 + 40 + WEIGHTS_S)


def test_a_late_prompt_is_left_for_the_next_step():
    """With one prompt more in flight than a step takes, the longest one is waited for beside others."""
    of = queue([[100], [100], [100], [1000]] * 8, 8, prompts=4)
    fresh, stale = (seconds(of, 1.0, staleness=share) for share in (0.0, 0.5))
    assert fresh == pytest.approx(10 + 1 + WEIGHTS_S)
    assert stale < 0.8 * fresh


@given(st.integers(0, 1000), st.floats(0.1, 50), st.integers(1, 4))
def test_old_weights_hide_rollouts_behind_a_slower_trainer(seed, more, pulls):
    lengths = np.random.default_rng(seed).integers(1, 100, (8, 4))
    of = queue(lengths, 8)
    trainer_s = 100 * STEP_S + more  # More than any prompt takes.
    assert seconds(of, trainer_s, 1.0, pulls) == pytest.approx(trainer_s + WEIGHTS_S)


@given(st.integers(0, 1000), st.floats(0.01, 5), st.floats(0, 1), st.integers(1, 4))
def test_a_step_is_at_least_the_trainer_and_at_most_all_in_turn(seed, trainer_s, staleness, pulls):
    lengths = np.random.default_rng(seed).integers(1, 100, (8, 4))
    of, alone = queue(lengths, 3), queue(lengths, 3)
    rollouts = seconds(alone, 0.0) - WEIGHTS_S
    times = [seconds(of, trainer_s, staleness, pulls, way) for way in ("keep", "finish")]
    assert trainer_s + WEIGHTS_S <= times[0] * (1 + 1e-9)
    assert max(times) <= 2 * rollouts + trainer_s + WEIGHTS_S + 1e-9
    assert seconds(of, trainer_s, 0.0, pulls) <= rollouts + trainer_s + WEIGHTS_S + 1e-9


def test_kv_that_is_computed_again_delays_rollouts_and_not_a_busy_trainer():
    of = queue(np.tile([100, 300, 200], (8, 1)), 8, resume_s=1.0, prompts=4)
    assert seconds(of, 0.1, 1.0, running="recompute") > seconds(of, 0.1, 1.0) + 0.5
    assert seconds(of, 60.0, 1.0, running="recompute") == pytest.approx(seconds(of, 60.0, 1.0))
