"""The integer program of a mix: exhaustion, the published formulation, limits."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import InfeasibleError
from planner.serving.mix.allocation import Costs, Ways, allocate

pulp = pytest.importorskip("pulp")


def costs(price, load, available=None, devices=None, watts=None):
    price, load = np.array(price, float), np.array(load, float)
    types = np.arange(len(price))
    return Costs(
        price=price,
        load=load,
        ways=Ways.together(len(price)),
        type_of=types,
        devices=np.ones(len(price)) if devices is None else np.array(devices, float),
        available=np.full(len(price), np.inf) if available is None else np.array(available, float),
        watts=np.full(len(price), 300.0) if watts is None else np.array(watts, float),
        names=tuple(f"type {kind}" for kind in types),
        rate=10.0,
    )


def published(price, load, slices):
    """Cost by the formulation of Mélange's solver: a binary variable for every slice and type."""
    types, buckets = np.shape(load)
    problem = pulp.LpProblem("published", pulp.LpMinimize)
    count = [problem.add_variable(f"y_{kind}", 0, None, pulp.LpInteger) for kind in range(types)]
    cells = list(product(range(buckets), range(slices), range(types)))
    sent = {cell: problem.add_variable("x_%d_%d_%d" % cell, 0, 1, pulp.LpInteger) for cell in cells}  # noqa: UP031
    problem += pulp.lpSum(price[kind] * count[kind] for kind in range(types))
    for bucket, part in product(range(buckets), range(slices)):
        problem += pulp.lpSum(sent[bucket, part, kind] for kind in range(types)) == 1
    for kind in range(types):
        used = [load[kind][cell[0]] / slices * sent[cell] for cell in cells if cell[2] == kind]
        problem += pulp.lpSum(used) <= count[kind]
    problem.solve(pulp.HiGHS(msg=False))
    return pulp.value(problem.objective)


def test_the_example_of_the_public_solver():
    # melange-release, main.py at b5e6eb5: two types, four request sizes, 16 requests a second, one slice.
    throughput = np.array([[5, 1, 10, 5], [20, 2, 50, 20]], float)
    rate = 16 * np.array([0.25, 0.5, 0.25, 0.25])
    found = allocate(costs([1.01, 3.67], rate / throughput), slices=1)
    assert found.proved
    assert found.usd_per_hour == pytest.approx(published([1.01, 3.67], rate / throughput, 1))
    # By hand: 10 A10G carry all 10 (0.8 + 8 + 0.4 + 0.8); 4 of 8 requests a second more cost 4 A100.
    assert found.usd_per_hour == pytest.approx(10 * 1.01)
    assert list(found.replicas) == [10, 0]


loads = st.lists(st.lists(st.floats(0.05, 3.0), min_size=3, max_size=3), min_size=2, max_size=3)


@settings(max_examples=15, deadline=None)
@given(loads, st.lists(st.floats(0.5, 8.0), min_size=3, max_size=3), st.sampled_from((1, 2, 4)))
def test_equals_the_published_formulation(load, price, slices):
    price = price[: len(load)]
    found = allocate(costs(price, load), slices)
    assert found.usd_per_hour == pytest.approx(published(price, load, slices), rel=1e-6)
    np.testing.assert_allclose(found.share.sum(axis=0), 1.0)
    used = (found.share * np.array(load)).sum(axis=1)
    assert np.all(used <= found.replicas + 1e-6)


def test_equals_exhaustion():
    price, load = [1.0, 2.6], [[0.7, 1.9], [0.3, 0.6]]
    best = min(
        sum(
            cost * np.ceil(round(sum(row[b] * share[b][kind] for b in range(2)), 9))
            for kind, (cost, row) in enumerate(zip(price, load, strict=True))
        )
        for share in product([(k / 4, 1 - k / 4) for k in range(5)], repeat=2)
    )
    assert allocate(costs(price, load), slices=4).usd_per_hour == pytest.approx(best)


def test_a_type_more_never_costs_more():
    load, price = [[0.4, 2.0], [1.2, 0.5], [0.2, 0.2]], [1.0, 1.1, 2.9]
    spent = [allocate(costs(price[:kinds], load[:kinds]), slices=4).usd_per_hour for kinds in (1, 2, 3)]
    assert spent == sorted(spent, reverse=True)
    assert spent[-1] < spent[0]


def test_what_is_available_and_the_power_bind():
    load, price = [[0.9, 2.4], [0.5, 0.5]], [1.0, 5.0]
    free = allocate(costs(price, load), slices=4)
    assert free.replicas[0] > 1
    short = allocate(costs(price, load, available=[1, np.inf]), slices=4)
    assert short.replicas[0] <= 1
    assert short.usd_per_hour > free.usd_per_hour
    cool = allocate(costs(price, load, watts=[300, 350]), slices=4, watts=360)
    assert cool.replicas @ np.array([300, 350]) <= 360
    with pytest.raises(
        InfeasibleError, match=r"within 300 W; short of power \(300 W available, 350 W needed\)"
    ):
        allocate(costs(price, load, watts=[300, 350]), slices=4, watts=300)


def test_a_short_type_is_named_with_what_would_do_and_the_load_that_is_carried():
    load, price = [[0.9, 2.4], [0.5, 0.5]], [1.0, 5.0]
    with pytest.raises(InfeasibleError) as told:
        allocate(costs(price, load, available=[1, 0]), slices=4)
    # One device of 3.3 carries 30 % of the load; three more of type 0 cost less than one of type 1.
    assert "short of type 0 (1 available, 4 needed)" in str(told.value)
    assert "about 3.03 of 10 requests/s" in str(told.value)
    assert "type 1" not in str(told.value)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=2, max_size=2))
def test_what_would_do_does_and_one_less_does_not(available):
    load, price = [[0.9, 2.4, 0.4], [0.5, 1.5, 0.9]], [1.0, 1.7]
    try:
        allocate(costs(price, load, available=available), slices=4)
    except InfeasibleError as error:
        found = re.findall(r"type (\d) \((\d+) available, (\d+) needed\)", str(error))
        enough = list(available)
        for kind, had, needed in found:
            assert int(had) == available[int(kind)]
            enough[int(kind)] = int(needed)
        assert found
        allocate(costs(price, load, available=enough), slices=4)
        for kind, _, _ in found:
            fewer = [count - (index == int(kind)) for index, count in enumerate(enough)]
            with pytest.raises(InfeasibleError):
                allocate(costs(price, load, available=fewer), slices=4)


def test_no_slice_goes_where_the_targets_are_missed():
    found = allocate(costs([1.0, 9.0], [[0.5, np.inf], [0.1, 0.1]]), slices=2)
    assert found.share[0, 1] == 0
    assert found.replicas[1] == 1


def test_pairs_of_types_equal_exhaustion():
    """Two types in three roles: every choice of ways for the halves of two buckets."""
    random = np.random.default_rng(3)
    ways = [(0, False, -1), (1, False, -1)]
    ways += [(2 + kind, False, to) for kind in range(2) for to in range(2)]
    ways += [(4 + kind, True, kind) for kind in range(2)]
    columns = [np.array(column) for column in zip(*ways, strict=True)]
    for _ in range(6):
        price = np.array([1.0, 2.3, 1.0, 2.3, 1.0, 2.3])
        load = random.uniform(0.1, 2.0, (len(ways), 2))
        found = allocate(
            Costs(
                price=price,
                load=load,
                ways=Ways(*columns),
                type_of=np.array([0, 1, 0, 1, 0, 1]),
                devices=np.ones(6),
                available=np.full(2, np.inf),
                watts=np.full(6, 300.0),
                names=("a", "b"),
                rate=1.0,
            ),
            slices=2,
        )
        pairs = [(0,), (1,), *((2 + 2 * kind + to, 6 + to) for kind in range(2) for to in range(2))]
        best = np.inf
        for choice in product(pairs, repeat=4):
            used = np.zeros(6)
            for index, one in enumerate(choice):
                for way in one:
                    used[columns[0][way]] += load[way, index // 2] / 2
            best = min(best, float(price @ np.ceil(np.round(used, 9))))
        assert found.usd_per_hour == pytest.approx(best)
        assert found.proved
        sent = found.share[~columns[1]].sum(axis=0)
        np.testing.assert_allclose(sent, 1.0)
        for kind in range(2):
            here = columns[2] == kind
            np.testing.assert_allclose(
                found.share[here & ~columns[1]].sum(axis=0), found.share[here & columns[1]].sum(axis=0)
            )


@settings(max_examples=10, deadline=None)
@given(loads, st.lists(st.floats(0.5, 8.0), min_size=3, max_size=3))
def test_a_type_alone_is_one_of_the_mixes(load, price):
    price = price[: len(load)]
    both = costs(price, load)
    best = allocate(both, 4).usd_per_hour
    for kind in range(len(load)):
        assert best <= allocate(both.of_type(kind), 4).usd_per_hour + 1e-9
