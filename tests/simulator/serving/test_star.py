"""All-reduces in a star."""

import numpy as np
import pytest

from hwmodels.cluster import clusters
from simulator.serving.engines import engines
from simulator.serving.steps.all_reduce import all_reduce_seconds, star_seconds

BOARDS = clusters.get("jetson-agx-orin").resized(8)


def slow_to_answer(latency_s):
    network = BOARDS.network.model_copy(update={"latency_s": latency_s})
    return BOARDS.model_copy(update={"network": network})


def reduce(latency_s, size, star):
    engine = engines.get("vllm-0.11")
    return float(all_reduce_seconds(slow_to_answer(latency_s), 8, np.array(size), engine, star))


def test_a_star_is_two_hops():
    near, far = (reduce(latency, 8192.0, True) for latency in (1e-3, 2e-3))
    assert far - near == pytest.approx(2e-3, rel=0.05)
    # A tree of eight is six, a ring fourteen.
    assert reduce(2e-3, 8192.0, False) - reduce(1e-3, 8192.0, False) > 4e-3


def test_it_wins_where_latency_exceeds_the_bytes_and_loses_where_not():
    assert reduce(1e-3, 8192.0, True) < 0.6 * reduce(1e-3, 8192.0, False)
    assert reduce(1e-3, 64e6, True) > 2.0 * reduce(1e-3, 64e6, False)


def test_its_link_carries_every_message():
    size = np.array([1e8, 2e8])
    few, many = (star_seconds(BOARDS, ranks, size) for ranks in (3, 5))
    np.testing.assert_allclose(many / few, 2.0, rtol=0.02)
    rate = BOARDS.network.bandwidth
    assert (few >= 2 * 2 * size / rate).all()


def test_one_rank_sends_nothing():
    engine = engines.get("vllm-0.11")
    assert float(all_reduce_seconds(BOARDS, 1, np.array(1e6), engine, True)) == 0.0
