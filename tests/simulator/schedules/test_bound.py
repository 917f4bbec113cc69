"""Bounds of schedules without a closed form."""

import numpy as np
import pytest

from simulator.schedules import PipelineTimes, WorkTimes, schedules
from simulator.schedules.bound import makespan_of
from simulator.schedules.walk import walk

OPEN = [name for name, schedule in schedules.items() if not schedule.has_closed_form]
STAGES, MICRO_BATCHES = 4, 12


def pipeline(stages, micro_batches, chunks, first=1.0, last=1.0):
    """A pipeline whose forward takes 1 s a rank and its backward 2 s."""
    forward, backward = (first, 1.0, last), (2 * first, 2.0, 2 * last)
    return PipelineTimes.of_equal(stages, micro_batches, chunks, forward, backward, 0.0, True)


def chunks_of(name, stages=STAGES, micro_batches=MICRO_BATCHES):
    return next(v for v in range(1, 9) if schedules[name].requires(stages, micro_batches, v))


@pytest.mark.parametrize("name", OPEN)
def test_of_equal_ranks_a_bound_is_the_walk_of_the_order(name):
    schedule, v = schedules[name], chunks_of(name)
    places = len(schedule.routes(STAGES, v)[0])
    share = STAGES / places
    work = (share, share, share) if schedule.splits_backward else (share, 2 * share, 0.0)
    times = WorkTimes(*([seconds] * places for seconds in work))
    done = walk(schedule, STAGES, MICRO_BATCHES, v, schedule.orders(STAGES, MICRO_BATCHES, v), times)
    seconds = done.period if schedule.post_validation else done.seconds
    bound = makespan_of(schedule, pipeline(STAGES, MICRO_BATCHES, v))
    assert bound.item() == pytest.approx(max(seconds, 3.0 * MICRO_BATCHES))


@pytest.mark.parametrize("name", OPEN)
def test_a_bound_is_at_least_the_work_of_the_busiest_rank_and_grows_with_stages(name):
    schedule = schedules[name]
    v = chunks_of(name, 16, 64)
    stages = np.array([4, 16])
    times = pipeline(stages, 64, v, last=1.2)
    bounds = makespan_of(schedule, times)
    spread = schedule.output_barriers or schedule.copies > 1
    assert (bounds >= 64 * 3.0 * (1.0 if spread else 1.2) - 1e-9).all()
    assert bounds[1] >= bounds[0] - 64 * 3.0 * 0.2


def test_a_plan_alone_has_the_bound_that_it_has_in_a_batch():
    together = makespan_of(schedules["zb-h1"], pipeline(np.array([2, 4, 8]), np.array([16, 8, 64]), 1))
    alone = [makespan_of(schedules["zb-h1"], pipeline(p, m, 1)).item() for p, m in ((2, 16), (4, 8), (8, 64))]
    assert together.tolist() == alone


def test_closed_forms_stay():
    times = pipeline(4, 8, 1)
    assert makespan_of(schedules["1f1b"], times) == schedules["1f1b"].makespan(times)


@pytest.mark.parametrize("name", ["zb-h1", "zb-h2", "2bp", "zb-auto", "chimera", "hanayo"])
def test_a_bound_does_not_rise_where_forward_passes_shorten(name):
    """Idle time by rounded ratios of the passes rose by up to 6 % of a step at a riser."""
    schedule, v, seconds = schedules[name], chunks_of(name), np.linspace(0.7, 1.1, 81)
    ranks = (seconds, seconds, seconds), (2.0, 2.0, 2.0)
    bounds = makespan_of(schedule, PipelineTimes.of_equal(STAGES, MICRO_BATCHES, v, *ranks, 0.0, True))
    assert (np.diff(bounds) >= -1e-9).all()
