"""Which units of a prefix cache go, and when."""

import random
from collections import OrderedDict

from simulator.serving.replica.kv import PrefixBlocks
from simulator.serving.replica.kv.prefix import MOST_PLACES
from simulator.serving.replica.sequence import Sequence
from simulator.serving.workload.request import Request

BLOCK = 16


class Kept(PrefixBlocks):
    """A cache that lists the units that it evicts."""

    def __init__(self, total):
        super().__init__(total, BLOCK, BLOCK)
        self.gone = []

    def evicted(self, unit):
        super().evicted(unit)
        self.gone.append(unit)


def sequence(units):
    tokens = BLOCK * len(units) + 1
    request = Request(0, 0.0, tokens, 1, tuple(units), 0, -1, 0, 0, -1, (), float("inf"))
    return Sequence(request, 0.0)


def admitted(kv, units):
    """A sequence whose whole prompt is computed."""
    new = sequence(units)
    new.computed = kv.match(new)
    assert kv.hold(new, new.target, new.computed)
    new.computed = new.target
    kv.computed(new)
    return new


def test_unused_units_go_in_the_order_of_their_last_use_tails_first():
    kv = Kept(total=8)
    for units in ((1, 2, 3), (4, 5)):
        kv.release(admitted(kv, units), BLOCK * len(units) + 1)
    again = admitted(kv, (1, 2))
    kv.release(again, 2 * BLOCK + 1)
    kv.grow(kv.free)
    assert kv.gone == [3, 5, 4, 2, 1]
    assert kv.shared == 0


def test_the_line_of_unused_units_agrees_with_an_ordered_dictionary_and_stays_short():
    draws = random.Random(5)
    kv, idle, expected, most = Kept(total=80), OrderedDict(), [], 0
    for number in range(3000):
        # All families fit until late, so that places go out of date without an eviction.
        family, length = draws.randrange(9 if number < 1500 else 12), draws.randrange(1, 9)
        units = [100 * family + place for place in range(length)]
        running = admitted(kv, units)
        assert running.cached_units == units
        for unit in units:
            idle.pop(unit, None)
        while len(expected) < len(kv.gone):
            expected.append(idle.popitem(last=False)[0])
        kv.release(running, BLOCK * length + 1)
        idle.update(dict.fromkeys(reversed(units)))
        most = max(most, len(kv._line))
        assert kv.free == kv.total
    assert expected == kv.gone
    assert len(kv.gone) > 10
    assert most <= MOST_PLACES * (len(idle) + 1000) + 8
