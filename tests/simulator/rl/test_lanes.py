"""Lanes of a step, and its band: identities."""

from itertools import pairwise

import pytest
from hypothesis import given

from simulator.rl.lanes import lanes
from simulator.rl.schedules import RL_SCHEDULES
from tests.simulator.rl.phases import SPLIT, phases


@pytest.mark.parametrize("kind", RL_SCHEDULES, ids=lambda kind: kind.name)
@given(step=phases())
def test_lanes_fill_the_step_without_overlap(kind, step):
    split = SPLIT if kind.beside else None
    schedule = kind.model_validate({"split": split})
    timing = schedule.timing(step)
    segments = lanes(step, timing, split, kind.beside)
    for lane in {segment.lane for segment in segments}:
        ends = [(each.start, each.end) for each in segments if each.lane == lane]
        assert ends[0][0] == 0.0
        assert all(later[0] == pytest.approx(end) for (_, end), later in pairwise(ends))
        assert ends[-1][1] <= timing.seconds * (1 + 1e-9)
    assert max(segment.end for segment in segments) == pytest.approx(timing.seconds)
