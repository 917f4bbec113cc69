"""The cost of a collective as a record."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.cluster import clusters
from hwmodels.collectives.calibration import FAMILIES
from hwmodels.collectives.call import Floats
from hwmodels.collectives.cost import Cost
from hwmodels.collectives.traffic import traffic

LUMI = clusters.get("lumi").resized(512)


@given(
    operation=st.sampled_from(sorted(FAMILIES)),
    bytes_=st.floats(1, 1e11),
    size=st.sampled_from([1, 2, 8, 64]),
    stride=st.sampled_from([1, 2, 8]),
)
def test_a_record_repeats_the_seconds_and_bytes_that_are_asked_for_alone(operation, bytes_, size, stride):
    cost = LUMI.collective_cost(operation, bytes_, size, stride)
    assert cost.seconds == LUMI.collective(operation, bytes_, size, stride)
    assert np.array_equal(cost.bytes, traffic(operation, bytes_, size, stride, (2, 8)))
    assert cost.bytes.shape == cost.busy.shape == (3,)
    assert 0 <= cost.share <= 1
    if size > 1:
        assert cost.level == LUMI.level_of(size, stride)
        assert np.count_nonzero(cost.busy) == 1


def test_bytes_alone_fill_links_when_messages_are_large_and_hardly_when_they_are_small():
    cost = LUMI.collective_cost("all_gather", [1e3, 1e12], 64)
    assert cost.share[0] < 0.01
    assert cost.share[1] > 0.99


def test_nothing_is_busy_in_a_group_of_one():
    alone = LUMI.collective_cost("all_reduce", 1e9, 1)
    assert (alone.seconds, alone.share, alone.level) == (0, 0, 0)


def test_costs_add_up_scale_and_are_selected():
    sizes = np.array([2, 8, 64])
    gather, scatter = (LUMI.collective_cost(name, 1e8, sizes) for name in ("all_gather", "reduce_scatter"))
    both = sum([gather, 3 * scatter])
    assert isinstance(both, Cost)
    for part in ("seconds", "busy", "bytes"):
        assert getattr(both, part) == pytest.approx(getattr(gather, part) + 3 * getattr(scatter, part))
    chosen = (np.array([0.0, 1.0, 1.0]) * gather)[sizes > 2]
    for part in ("seconds", "busy", "bytes"):
        expected: Floats = getattr(gather, part)[..., 1:]
        assert np.array_equal(getattr(chosen, part), expected)


def test_a_sum_counts_for_the_level_that_it_keeps_busiest():
    near, far = (LUMI.collective_cost("all_gather", size, ranks) for size, ranks in ((1e9, 2), (1e9, 64)))
    assert (near + far).level == 2
    assert (1000 * near + far).level == 0
