"""Max-min fair rates."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.flows import fair_rates


def test_textbook_example():
    """Bertsekas and Gallager, figure 6.10 in spirit: one long flow shares each link with others."""
    rates = fair_rates([[0, 1], [0], [1], [1]], np.array([10.0, 6.0]))
    np.testing.assert_allclose(rates, [2.0, 8.0, 2.0, 2.0])


def test_a_flow_alone_gets_its_narrowest_link():
    np.testing.assert_allclose(fair_rates([[0, 1, 2]], np.array([5.0, 3.0, 4.0])), [3.0])


def test_a_flow_without_links_is_unlimited():
    assert fair_rates([[], [0]], np.array([1.0])).tolist() == [np.inf, 1.0]
    assert fair_rates([], np.array([1.0])).tolist() == []


@st.composite
def networks(draw):
    links = draw(st.integers(1, 6))
    capacity = np.array(draw(st.lists(st.floats(0.5, 100), min_size=links, max_size=links)))
    route = st.lists(st.integers(0, links - 1), min_size=1, max_size=links, unique=True)
    return draw(st.lists(route, min_size=1, max_size=12)), capacity


@settings(max_examples=150, deadline=None, derandomize=True)
@given(networks())
def test_links_are_never_exceeded_and_every_flow_has_a_bottleneck(network):
    routes, capacity = network
    rates = fair_rates(routes, capacity)
    used = np.zeros(len(capacity))
    largest = np.zeros(len(capacity))
    for route, rate in zip(routes, rates, strict=True):
        for link in route:
            used[link] += rate
            largest[link] = max(largest[link], rate)
    assert np.all(used <= capacity * (1 + 1e-9))
    for route, rate in zip(routes, rates, strict=True):
        # A full link on which nobody is faster: no flow can gain but at the cost of one no faster.
        assert any(
            used[link] >= capacity[link] * (1 - 1e-9) and rate >= largest[link] * (1 - 1e-9) for link in route
        )
