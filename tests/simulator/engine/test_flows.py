"""Max-min fair rates."""

from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.engine.flows import fair_rates


def test_textbook_example():
    """Bertsekas and Gallager, figure 6.10 in spirit: one long flow shares each link with others."""
    rates = fair_rates([[0, 1], [0], [1], [1]], [inf] * 4, [10.0, 6.0])
    assert rates == pytest.approx([2.0, 8.0, 2.0, 2.0])


def test_a_flow_alone_gets_its_narrowest_link_or_what_it_asks_for():
    assert fair_rates([[0, 1, 2]], [inf], [5.0, 3.0, 4.0]) == [3.0]
    assert fair_rates([[0, 1, 2]], [2.0], [5.0, 3.0, 4.0]) == [2.0]


def test_what_one_does_not_ask_for_is_left_to_the_others():
    assert fair_rates([[0], [0], [0]], [1.0, inf, inf], [9.0]) == pytest.approx([1.0, 4.0, 4.0])


def test_a_flow_without_links_gets_what_it_asks_for():
    assert fair_rates([[], [0]], [inf, inf], [1.0]) == [inf, 1.0]
    assert fair_rates([], [], [1.0]) == []


@st.composite
def networks(draw):
    links = draw(st.integers(1, 6))
    capacity = draw(st.lists(st.floats(0.5, 100), min_size=links, max_size=links))
    route = st.lists(st.integers(0, links - 1), min_size=1, max_size=links, unique=True)
    routes = draw(st.lists(route, min_size=1, max_size=12))
    demand = st.one_of(st.just(inf), st.floats(0.1, 100))
    return routes, draw(st.lists(demand, min_size=len(routes), max_size=len(routes))), capacity


@settings(max_examples=150, deadline=None, derandomize=True)
@given(networks())
def test_links_are_never_exceeded_and_every_flow_has_its_demand_or_a_bottleneck(network):
    routes, demands, capacity = network
    rates = fair_rates(routes, demands, capacity)
    used = [0.0] * len(capacity)
    largest = [0.0] * len(capacity)
    for route, rate in zip(routes, rates, strict=True):
        for link in route:
            used[link] += rate
            largest[link] = max(largest[link], rate)
    assert all(each <= most * (1 + 1e-9) for each, most in zip(used, capacity, strict=True))
    for route, demand, rate in zip(routes, demands, rates, strict=True):
        # A full link on which nobody is faster: no flow can gain but at the cost of one no faster.
        assert rate == demand or any(
            used[link] >= capacity[link] * (1 - 1e-9) and rate >= largest[link] * (1 - 1e-9) for link in route
        )
