"""Partial pooling of constants over groups, on made-up engines whose constants are known."""

import numpy as np
import pytest

from evidence.fits.pooled import Noise, SharedEffect, covariance, linear, solve

MEAN, SCALE, FLOOR = np.array([1.0, 0.5]), np.array([1.0, 1.0]), np.zeros(2)
LEVELS = (
    SharedEffect("all", lambda group: 0, 0.5),
    SharedEffect("engine", lambda group: group[0], 1.0),
    SharedEffect("own", lambda group: group, 0.2),
)


def noise(rows, own=0.05, shared=0.0) -> Noise:
    return Noise(np.full(rows, own), np.full(rows, shared), np.zeros(rows, dtype=np.int64))


def evidence(truth, sizes, own=0.05, shared=0.0, shift=0.0):
    """Rows whose time is the first constant and the second for each unit of size."""
    sizes = np.asarray(sizes, dtype=float)
    measured = truth[0] + truth[1] * sizes

    def errors(constants):
        return constants[0] + constants[1] * sizes - measured + shift

    return linear(errors, MEAN, SCALE, noise(len(sizes), own, shared))


def test_rows_that_tell_all_find_the_constants():
    groups = [("a", 1)]
    found = solve(groups, LEVELS, MEAN, SCALE, FLOOR, [evidence((2.0, 0.7), np.linspace(0, 9, 200), 0.001)])
    assert found[0] == pytest.approx([2.0, 0.7], rel=1e-3)


def test_a_group_without_rows_takes_the_mean_of_its_engine():
    groups = [("a", 1), ("a", 2), ("a", 3), ("b", 1)]
    rows = [
        evidence((3.0, 0.5), np.linspace(0, 9, 50), 0.01),
        evidence((3.2, 0.5), np.linspace(0, 9, 50), 0.01),
        evidence((0.0, 0.0), []),
        evidence((0.0, 0.0), []),
    ]
    found = solve(groups, LEVELS, MEAN, SCALE, FLOOR, rows)
    assert found[2, 0] == pytest.approx(3.1, abs=0.15)
    # Another engine shares only the effect of all.
    assert MEAN[0] < found[3, 0] < 2.0


def test_no_constant_falls_below_its_floor():
    found = solve([("a", 1)], LEVELS, MEAN, SCALE, FLOOR, [evidence((-3.0, 0.5), np.linspace(0, 9, 50))])
    assert found[0, 0] == 0.0
    assert found[0, 1] > 0.0


def test_many_rows_of_one_server_weigh_little_more_than_one():
    groups = [("a", 1)]
    few, many = (
        solve(groups, LEVELS, MEAN, SCALE, FLOOR, [evidence((2.0, 0.5), np.zeros(n), 0.3, 1.0)])[0, 0]
        for n in (2, 200)
    )
    alone = solve(groups, LEVELS, MEAN, SCALE, FLOOR, [evidence((2.0, 0.5), np.zeros(200), 0.3)])[0, 0]
    assert few < many < few + 0.1
    assert alone == pytest.approx(2.0, abs=0.01)
    assert many < 1.7


def test_an_error_that_rows_share_leaves_their_differences():
    rows = evidence((1.0, 0.9), np.linspace(0, 9, 50), 0.01, 1.0, shift=0.4)
    found = solve([("a", 1)], LEVELS, MEAN, SCALE, FLOOR, [rows])
    assert found[0, 1] == pytest.approx(0.9, abs=0.01)


def test_one_row_that_breaks_pulls_little():
    sizes = np.zeros(21)
    rows = evidence((2.0, 0.5), sizes, 0.05)
    broken = rows._replace(errors=rows.errors + np.where(np.arange(21) == 0, 10.0, 0.0))
    assert solve([("a", 1)], LEVELS, MEAN, SCALE, FLOOR, [broken])[0, 0] == pytest.approx(2.0, abs=0.05)


def test_rows_left_out_tell_nothing():
    rows = evidence((3.0, 0.5), np.linspace(0, 9, 50), 0.01)
    found = solve([("a", 1)], LEVELS, MEAN, SCALE, FLOOR, [rows.only(np.zeros(50, dtype=bool))])
    assert found[0] == pytest.approx(MEAN, rel=1e-4)


def test_groups_vary_together_by_what_they_share():
    found = covariance([("a", 1), ("a", 2), ("b", 1)], LEVELS)
    assert found[0, 1] == pytest.approx(0.25 + 1.0)
    assert found[0, 2] == pytest.approx(0.25)
    assert found[0, 0] == pytest.approx(0.25 + 1.0 + 0.04, rel=1e-4)


def test_a_level_may_spread_constants_differently():
    """Where engines differ in the first constant only, rows of one tell the other engine's second."""
    groups = [("a", 1), ("b", 1)]
    levels = (
        SharedEffect("all", lambda group: 0, 1.0),
        SharedEffect("engine", lambda group: group[0], (1.0, 0.01)),
    )
    rows = [evidence((3.0, 0.9), np.linspace(0, 9, 200), 0.001), evidence((0.0, 0.0), [])]
    found = solve(groups, levels, MEAN, SCALE, FLOOR, rows)
    assert found[1, 1] == pytest.approx(0.9, abs=0.01)
    assert MEAN[0] < found[1, 0] < 2.1
