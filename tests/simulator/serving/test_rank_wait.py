"""Waits behind prompts of several steps, beside a queue in which arrivals go where fewest requests are."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from simulator.serving.steady.waits import rank_wait

PROMPT, DECODE = 1.0, 0.5


def queued(rate, replicas, arrivals=6000):
    """Mean wait before a prompt; each replica computes prompts in turn, and decodes beside them."""
    draw, now, waits = random.Random(1), 0.0, []
    free, ends = [0.0] * replicas, [[] for _ in range(replicas)]
    for _ in range(arrivals):
        now += draw.expovariate(rate * replicas)
        ends = [[end for end in some if end > now] for some in ends]
        to = min(range(replicas), key=lambda replica: (len(ends[replica]), draw.random()))
        begins = max(now, free[to])
        free[to] = begins + PROMPT
        ends[to].append(free[to] + DECODE)
        waits.append(begins - now)
    return float(np.mean(waits))


@pytest.mark.parametrize(("replicas", "rate"), [(1, 0.2), (4, 0.3), (8, 0.2), (8, 0.4), (8, 0.6)])
def test_an_arrival_seldom_finds_a_prompt_where_replicas_are_free(replicas, rate):
    figures = (rate, PROMPT, PROMPT, 50.0, 1.0, DECODE)
    names = {"ranks": 1.0, "stages": 1.0, "shared": float(replicas), "decodes": True}
    cases = SimpleNamespace(**{name: np.array([value]) for name, value in names.items()})
    wait = rank_wait(cases, *(np.array([figure]) for figure in figures))[0]
    assert wait == pytest.approx(queued(rate, replicas), abs=0.1 * PROMPT)
