"""Overlap: what stays visible of communication beside kernels."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.setting import Setting
from simulator.training.overlap import Exchange, Transfer, contention, hide, multiprocessors_taken
from simulator.workload import Training

NEMO = frameworks.get("nemo")
SECONDS, SHARE = st.floats(0, 1e3), st.floats(0, 1)
COST = clusters.get("dgx-h100").resized(64).collective_cost("all_gather", np.array([1e9]), 64)


def lost(setting, ranks, stride=(1,), size=1e12):
    """Speed that kernels lose beside gathers of ``size`` bytes among groups of ranks."""
    groups = np.array(ranks), np.broadcast_to(stride, len(ranks))
    cost = setting.cluster.collective_cost("all_gather", size, *groups)
    return contention(setting, *groups, cost.seconds, lambda: cost.bytes.sum(axis=0))


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
    assert Exchange(COST, np.zeros(1), 0.1).exposed(endless) == pytest.approx(0.1 * seconds)
    assert Exchange(COST, np.ones(1), 0.1).exposed(endless) == pytest.approx(seconds)


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
    inside, across = lost(make_setting(), [8, 16])
    assert 0 < across < inside < 1


def test_kernels_lose_less_to_rings_that_move_fewer_bytes_a_second(make_setting):
    setting = make_setting(devices=64)
    slow = setting.cluster.with_network(nic_gbps_per_node=200, fabric="infiniband")
    everywhere, one_a_node = lost(setting, [64, 8], [1, 8])
    (slow_nics,) = lost(make_setting(devices=64, cluster=slow), [64])
    alone = multiprocessors_taken(setting)
    assert alone < one_a_node < everywhere
    assert slow_nics == pytest.approx(one_a_node, rel=0.07)


def test_a_latency_bound_ring_takes_multiprocessors_only(make_setting):
    setting = make_setting(devices=64)
    short, long = (lost(setting, [64], size=size)[0] for size in (1e3, 1e10))
    assert multiprocessors_taken(setting) == pytest.approx(short, rel=1e-3)
    assert short < long


@given(size=st.floats(1e3, 1e11), faster=st.floats(1, 100))
def test_faster_nics_take_no_more_from_kernels(size, faster):
    cluster = clusters.get("dgx-h100").resized(64)
    quick = cluster.with_network(nic_gbps_per_node=faster * cluster.network.bandwidth * 8e-9)
    taken = []
    for each in (cluster, quick):
        setting = Setting(models.get("llama3.1-8b"), each, Training(seq_len=4096, global_batch=64), NEMO)
        seconds = each.collective("all_gather", size, 64)
        taken.append(lost(setting, [64], size=size)[0] * seconds)
    assert taken[1] <= taken[0] * (1 + 1e-12)


def test_a_group_of_one_rank_never_leaves_its_domain(make_setting):
    assert lost(make_setting(), [1], [64]) == lost(make_setting(), [8])
