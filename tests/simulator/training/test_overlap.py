"""Overlap: what stays visible of communication beside kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.cluster import clusters
from simulator.training.overlap import Exchange, Transfer, contention, hide, multiprocessors_taken

SECONDS, SHARE = st.floats(0, 1e3), st.floats(0, 1)
COST = clusters.get("dgx-h100").resized(64).collective_cost("all_gather", np.array([1e9]), 64)


@given(communication=SECONDS, window=SECONDS, tail=SHARE, slowdown=SHARE)
def test_visible_seconds_lie_between_the_tail_and_all_of_it(communication, window, tail, slowdown):
    shown = hide(np.array([communication]), np.array([window]), np.array([tail]), slowdown)[0]
    assert communication * tail - 1e-9 <= shown <= communication + 1e-9
    assert shown >= communication - window - 1e-9


@given(communication=SECONDS, tail=SHARE, slowdown=SHARE, windows=st.tuples(SECONDS, SECONDS))
def test_longer_kernels_never_show_more(communication, tail, slowdown, windows):
    shown = [
        hide(np.array([communication]), np.array([window]), np.array([tail]), slowdown)[0]
        for window in sorted(windows)
    ]
    assert shown[1] <= shown[0] + 1e-9


def test_kernels_lose_speed_to_what_runs_beside_them():
    endless = np.array([1e9])
    seconds = COST.seconds[0]
    assert Exchange(COST, np.zeros(1)).exposed(endless, 0.1) == pytest.approx(0.1 * seconds)
    assert Exchange(COST, np.ones(1)).exposed(endless, 0.1) == pytest.approx(seconds)


def test_a_transfer_is_what_runs_beside_kernels_and_what_follows_them():
    beside = 0.25 * COST.seconds
    transfer = Transfer(COST, beside, 0.1)
    assert transfer.exposed == pytest.approx(transfer.total - 0.9 * beside)
    twice = transfer.times(np.array([2.0]))
    assert twice.exposed == pytest.approx(2 * transfer.exposed)
    assert twice.cost.bytes == pytest.approx(2 * COST.bytes)
    assert Transfer(COST).exposed.tolist() == COST.seconds.tolist()


def test_communication_longer_than_its_kernels_costs_what_they_leave():
    seconds = hide(np.array([3.0]), np.array([2.0]), np.zeros(1), np.array(0.35))
    # Slowed to 0.65 of their speed, 2 s of kernels last beyond the 3 s of communication.
    assert seconds[0] == pytest.approx(max(3.0 - 2.0, 0.35 * 3.0))


def test_a_collective_inside_a_domain_slows_kernels_more_than_one_across(make_setting):
    setting = make_setting()
    inside, across = contention(setting, np.array([8, 16]))
    assert 0 < across < inside < 1


def test_kernels_lose_less_to_rings_that_move_fewer_bytes_a_second(make_setting):
    setting = make_setting(devices=64)
    slow = setting.cluster.with_network(nic_gbps_per_node=200, fabric="infiniband")
    everywhere, one_a_node = contention(setting, np.array([64, 8]), np.array([1, 8]))
    (slow_nics,) = contention(make_setting(devices=64, cluster=slow), np.array([64]))
    alone = multiprocessors_taken(setting)
    assert alone < one_a_node < everywhere
    assert slow_nics == pytest.approx(one_a_node, rel=0.05)


def test_a_group_of_one_rank_never_leaves_its_domain(make_setting):
    assert contention(make_setting(), np.array([1]), np.array([64])) == contention(
        make_setting(), np.array([8])
    )
