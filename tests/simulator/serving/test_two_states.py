"""Shares of two states of one rate, beside runs of a batch whose step jumps."""

from collections import deque
from types import SimpleNamespace

import numpy as np
import pytest

from simulator.serving.steady.two_states import RUN, SKIPPED, passage

GAPS, JUMP, SLOTS, POINTS = 100, 60, 300, 32
HIGHEST = JUMP / (GAPS * (2e-3 + 5e-5 * JUMP))
"""Requests a second of the batch before the jump."""


def seconds(batch):
    """A decode step: 60 % longer behind the jump."""
    return (2e-3 + 5e-5 * batch) * np.where(batch > JUMP, 1.6, 1.0)


def run(rate: float, seed: int) -> float:
    """Share of steps' time behind the jump in a run of requests of ``GAPS`` decodes that starts empty."""
    times = np.random.default_rng(seed).exponential(1.0 / rate, int(RUN)).cumsum()
    table = seconds(np.arange(RUN + 1.0))
    begun = deque([0] * GAPS, GAPS)
    now, running, came, behind, total = 0.0, 0, 0, 0.0, 0.0
    while came < RUN:
        running -= begun.popleft()
        upto = came + int(np.searchsorted(times[came : came + 200], now, side="right"))
        begun.append(upto - came)
        running, came = running + upto - came, upto
        step = table[running] if running else 1e-3
        now += step
        if came > SKIPPED * RUN:
            behind, total = behind + step * (running > JUMP), total + step
    return behind / total


@pytest.mark.parametrize("part", [0.74, 0.78, 0.82, 0.88])
def test_a_run_of_equal_outputs_leaves_small_batches_after_the_passage_of_a_chain(part):
    """Odds of both states alone said 100 % where a run stays before the jump for longer than it lasts."""
    around = (SLOTS + 1.0) ** np.linspace(0.0, 1.0, POINTS)[:, None] - 1.0
    riser = np.array([int(np.searchsorted(around[:, 0], JUMP)) - 1])
    cases = SimpleNamespace(slots=np.full(POINTS, SLOTS), gaps=GAPS, shared=1.0, decode_steady=seconds)
    taken, rates = np.zeros((1, 1)), np.full((1, 1), part * HIGHEST)
    share, _ = passage(cases, around, riser, np.array([0]), rates, (taken, taken))  # pyright: ignore
    runs = [run(part * HIGHEST, seed) for seed in range(8)]
    assert float(share[0, 0]) == pytest.approx(np.mean(runs), abs=0.15)
