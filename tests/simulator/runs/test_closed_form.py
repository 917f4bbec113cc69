"""Closed forms of runs: renewal-reward, optimal periods, order statistics, published laws."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.runs.closed_form import (
    best_period,
    effective,
    elastic,
    first_order,
    simultaneous_losses,
    slowest_of_iid,
)

NODE_RATE = 6.5 / (1000 * 86400)
"""RSC-1: 6.50 failures in 1,000 node-days."""


def young(rate, stall):
    """Young's period: the optimum to first order."""
    return np.sqrt(2 * np.asarray(stall) / np.asarray(rate))


@pytest.mark.parametrize(
    ("devices", "stall", "recovery", "published"),
    [(16384, 300, 600, 0.66), (16384, 10, 120, 0.93), (131072, 10, 120, 0.72)],
)
def test_the_law_of_rsc_gives_its_printed_effective_times(devices, stall, recovery, published):
    rate = NODE_RATE * devices / 8
    assert first_order(rate, young(rate, stall), stall, recovery) == pytest.approx(published, abs=0.01)


def test_the_law_of_rsc_makes_no_progress_where_faults_outrun_recovery():
    rate = NODE_RATE * 131072 / 8
    assert first_order(rate, young(rate, 300), 300, 600) < 0
    assert 0 < effective(rate, young(rate, 300), 300, 600) < 0.2


def test_goodput_is_mean_progress_over_mean_cycle():
    rng = np.random.default_rng(1)
    rate, period, stall, recovery = 1 / 5000, 800.0, 40.0, 300.0
    walls = []
    for _ in range(4000):
        wall = 0.0
        while (gap := rng.exponential(1 / rate)) < period + stall:
            wall += gap
            while (again := rng.exponential(1 / rate)) < recovery:
                wall += again
            wall += recovery
        walls.append(wall + period + stall)
    error = 3 * np.std(walls) / np.sqrt(len(walls))
    assert period / effective(rate, period, stall, recovery) == pytest.approx(np.mean(walls), abs=error)


@given(
    mtbf=st.floats(1e3, 1e7),
    stall=st.floats(1e-3, 600),
    recovery=st.floats(0, 3600),
    factor=st.floats(0.2, 5).filter(lambda value: abs(value - 1) > 0.05),
)
def test_no_other_period_beats_the_best_one(mtbf, stall, recovery, factor):
    best = best_period(1 / mtbf, stall)
    assert effective(1 / mtbf, best * factor, stall, recovery) <= effective(1 / mtbf, best, stall, recovery)


def test_the_best_period_tends_to_that_of_young():
    assert best_period(1e-7, 1.0) == pytest.approx(young(1e-7, 1.0), rel=1e-3)
    assert np.isinf(best_period(0.0, 1.0))


def test_without_faults_only_saves_cost():
    assert effective(0.0, 900.0, 100.0, 600.0) == pytest.approx(0.9)
    assert effective(0.0, np.inf, 0.0, 600.0) == 1.0


def test_elastic_jobs_lose_stalls_and_a_share_of_a_replica():
    lost = 1 - elastic(1 / 1080, np.inf, 0.0, 180.0, 600.0, 12)
    assert lost == pytest.approx((180 + 600 / 12) / 1080)


def test_order_statistics_of_exponential_delays():
    draws = np.random.default_rng(0).exponential(1.0, 200_000)
    harmonic = sum(1 / k for k in range(1, 33))
    assert slowest_of_iid(draws, 32) == pytest.approx(harmonic, rel=0.01)
    fastest_28 = sum(1 / k for k in range(5, 33))
    assert slowest_of_iid(draws, 32, left_out=4) == pytest.approx(fastest_28, rel=0.01)
    assert slowest_of_iid(draws, 1) == pytest.approx(1.0, rel=0.01)


@pytest.mark.parametrize("nodes", [10, 300, 2000])
def test_spares_cover_the_stated_share_of_the_time(nodes):
    rate, repair = 1e-6, 40_000.0
    found = simultaneous_losses(nodes, rate, repair)
    down = np.random.default_rng(3).binomial(nodes, rate * repair / (1 + rate * repair), 200_000)
    assert np.mean(down <= found) >= 0.989
    assert found == 0 or np.mean(down <= found - 1) < 0.991
