"""Every schedule does what a training step needs, and the validator notices when one does not."""

import numpy as np
import pytest

from core.errors import InputError, UnknownNameError
from simulator.schedules import get_schedule, schedules
from simulator.schedules.gpipe import GPipe
from simulator.schedules.one_f_one_b import OneFOneB
from simulator.schedules.walk import validate, walk

CHUNKS = {
    "interleaved": (2, 3),
    "breadth-first": (2, 3),
    "hanayo": (2, 4),
    "chimera": (2,),
    "bitpipe": (4,),
    "dualpipe": (2,),
    "zb-v": (2,),
    "zeropp": (2, 3),
    "pipeoffload": (2, 4),
    "pipeoffload-full": (2, 3),
    "v-half": (2,),
    "vocab-v-half": (2,),
}
SIZES = [(1, 1), (1, 5), (2, 2), (2, 4), (3, 6), (3, 9), (4, 3), (4, 4), (4, 8), (5, 20), (8, 16), (8, 40)]
CASES = [
    (name, p, m, v)
    for name, schedule in schedules.items()
    for p, m in SIZES
    for v in CHUNKS.get(name, (1,))
    if schedule.requires(p, m, v)
]


@pytest.mark.parametrize(("name", "p", "m", "v"), CASES)
def test_schedule_is_valid(name, p, m, v):
    validate(schedules[name], p, m, v)


def test_every_schedule_is_checked_in_several_sizes():
    for name in schedules:
        assert len({case[1:3] for case in CASES if case[0] == name}) >= 3, name


@pytest.mark.parametrize(
    "name",
    [
        "gpipe",
        "1f1b",
        "interleaved",
        "breadth-first",
        "zb-h1",
        "zb-h2",
        "v-half",
        "pipeoffload",
        "pipeoffload-full",
        "vocab-1f1b",
        "interlaced",
    ],
)
def test_stated_activations_are_reached_on_every_rank(name):
    p, m, v = 6, 24, CHUNKS.get(name, (1,))[0]
    schedule = schedules[name]
    result = validate(schedule, p, m, v)
    stated = schedule.in_flight(p, m, v, np.arange(p))
    np.testing.assert_allclose(result.peak, stated)


def test_in_flight_broadcasts_over_plans():
    p = np.array([4, 8])
    stage = np.arange(4)[:, None]
    for name, schedule in schedules.items():
        held = schedule.in_flight(p, 16, CHUNKS.get(name, (1,))[0], stage)
        assert held.shape == (4, 2), name
        assert held[1, 1] == schedule.in_flight(8, 16, CHUNKS.get(name, (1,))[0], 1), name


class Broken(OneFOneB):
    def __init__(self, change):
        self.change = change

    def orders(self, stages, micro_batches, chunks, times=None):
        orders = [list(order) for order in super().orders(stages, micro_batches, chunks)]
        self.change(orders)
        return orders


def drop_a_backward(orders):
    orders[1].remove(("B", 3, 0))


def backward_before_forward(orders):
    order = orders[2]
    order.insert(0, order.pop(order.index(("B", 0, 0))))


def repeat_a_forward(orders):
    orders[0].append(orders[0][0])


def hoard(orders):
    for order in orders:
        order.sort(key=lambda task: task.kind != "F")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop_a_backward, "0 times on rank 1, not 1"),
        (repeat_a_forward, "2 times on rank 0, not 1"),
        (backward_before_forward, "deadlocks"),
        (hoard, "holds 8 micro batches on rank 0 of 4 and states 4"),
    ],
)
def test_validator_notices(change, message):
    with pytest.raises(InputError, match=message):
        validate(Broken(change), 4, 8, 1)


def test_backward_while_activations_are_away_is_noticed():
    schedule = schedules["pipeoffload"]

    class Forgetful(type(schedule)):
        def orders(self, stages, micro_batches, chunks, times=None):
            return [
                [task for task in order if task.kind != "R"]
                for order in super().orders(stages, micro_batches, chunks)
            ]

    with pytest.raises(InputError, match="while its activations are on the host"):
        validate(Forgetful(schedule.name, schedule.share), 4, 8, 2)


def test_numbers_that_a_schedule_cannot_run_with_are_refused_with_its_rule():
    with pytest.raises(InputError, match="micro batches in multiples of the stages; found 4 stages, 6 micro"):
        schedules["interleaved"].orders(4, 6, 2)
    with pytest.raises(InputError, match="'gpipe' needs one chunk per rank"):
        GPipe().orders(4, 4, 2)


def test_an_unknown_schedule_offers_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'interleaved'"):
        get_schedule("interleave")


def test_a_schedule_without_closed_form_says_so():
    with pytest.raises(InputError, match="'zb-h1' has no closed form"):
        schedules["zb-h1"].makespan(None)


@pytest.mark.slow
def test_orders_are_the_same_every_time():
    for name, p, m, v in CASES[::7]:
        assert schedules[name].orders(p, m, v) == schedules[name].orders(p, m, v)


def test_walk_counts_transfers_between_ranks_only():
    schedule = schedules["1f1b"]
    orders = schedule.orders(3, 1, 1)
    from simulator.schedules import WorkTimes

    slow = walk(schedule, 3, 1, 1, orders, WorkTimes([1] * 3, [2] * 3, [0] * 3, hop=0.5))
    assert slow.seconds == pytest.approx(9 + 4 * 0.5)


@pytest.mark.parametrize("name", list(schedules))
def test_where_a_route_ends_is_stated(name):
    schedule = schedules[name]
    for route in schedule.routes(4, CHUNKS.get(name, (1,))[0]):
        assert (route[0][0] == route[-1][0]) == schedule.returns
