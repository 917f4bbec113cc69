"""The same bytes over the same wire take the same time, whoever asks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hwmodels.cluster import Cluster, clusters
from simulator.checkpoints.rates import SaveRates
from simulator.scenario import make_scenario
from simulator.serving.question.places import read_rate
from simulator.serving.question.stream import WeightStream
from simulator.serving.starts import Loaded, starts
from simulator.serving.state import Route
from simulator.serving.state.lanes import Lanes
from simulator.serving.steps.stream import stream_seconds
from simulator.training.tiers import TierRates

BYTES = 1e15
"""Of a node: so many that starts and latencies vanish beside them."""
SAME = 1e-3


def two_nodes(name: str) -> Cluster:
    """A shipped cluster of two domains, or of one where it has no more."""
    cluster = clusters.get(name)
    return cluster.resized(min(2 * cluster.domain, cluster.nodes * cluster.devices_per_node))


def training_rates(cluster: Cluster) -> TierRates:
    """Rates that training's tiers have on all devices of a cluster."""
    scenario = make_scenario(
        {"model": "llama3-8b", "cluster": cluster.name, "gpus": cluster.devices}
        | {"workload": {"seq_len": 128, "global_batch": cluster.devices, "precision": "fp16"}},
        "test",
        Path(),
    )
    return TierRates.of(scenario.setting)


def host_seconds(cluster: Cluster) -> dict[str, float]:
    """Seconds to copy `BYTES` from the host of a node to all its devices, by who asks."""
    per_node = cluster.devices_per_node
    each = BYTES / per_node
    replica = Loaded(cluster, per_node, each)
    (lane,) = Lanes().route(cluster, 0, per_node, "host", "in")
    return {
        "tiers and states of KV": BYTES / read_rate(cluster, per_node, "host"),
        "lanes": BYTES / lane.rate,
        "streamed layers": stream_seconds(
            WeightStream.model_validate({"from": "host"}), cluster, per_node, each
        ),
        "start": starts["host"](pinned=True).load_s(replica),
        "checkpoint": BYTES / SaveRates.of(cluster).copy,
    }


def ssd_seconds(cluster: Cluster) -> dict[str, float]:
    """Seconds to read `BYTES` from the SSDs of a node, by who asks."""
    per_node = cluster.devices_per_node
    each = BYTES / per_node
    _, lane = Lanes().route(cluster, 0, per_node, "nvme", "in")
    return {
        "tiers and states of KV": BYTES / read_rate(cluster, per_node, "nvme"),
        "lanes": BYTES / lane.rate,
        "streamed layers": stream_seconds(
            WeightStream.model_validate({"from": "nvme"}), cluster, per_node, each
        ),
        "start": starts["disk"]().load_s(Loaded(cluster, per_node, each)),
        "checkpoint": BYTES / SaveRates.of(cluster).ssd_read,
    }


def send_seconds(cluster: Cluster) -> dict[str, float]:
    """Seconds to send `BYTES` from all devices of a node to those of another, by who asks."""
    per_node, other = cluster.devices_per_node, cluster.domain
    each = BYTES / per_node
    stage = cluster.hop_cost(each, per_node, len(cluster.levels))
    lane = Lanes().nics(cluster, 0, per_node, "out")
    return {
        "pipeline stage": float(stage.seconds),
        "transfer of KV": BYTES / Route.between(cluster, 0, per_node, other, per_node).bandwidth,
        "to another cluster": BYTES / Route.across(cluster, per_node, cluster, per_node).bandwidth,
        "lanes": BYTES / lane.rate,
        "tiers and states of KV": BYTES / read_rate(cluster, per_node, "remote"),
        "start from a peer": starts["peer"]().load_s(Loaded(cluster, per_node, each)),
        "checkpoint": BYTES / SaveRates.of(cluster).nic,
    }


def agree(seconds: dict[str, float]) -> None:
    """All who ask are told the same."""
    assert np.ptp(list(seconds.values())) <= SAME * min(seconds.values()), seconds


@pytest.mark.parametrize("name", clusters.names())
def test_the_same_bytes_take_the_same_time_whoever_asks(name):
    cluster = two_nodes(name)
    agree(host_seconds(cluster))
    if cluster.rates.ssd_read:
        agree(ssd_seconds(cluster))
    if cluster.devices > cluster.domain:
        agree(send_seconds(cluster))
    nodes = cluster.nodes_for(cluster.devices)
    checkpoint = SaveRates.of(cluster)
    stored = BYTES / min(checkpoint.client_read, checkpoint.read / nodes)
    agree(
        {
            "start": starts["remote"]().load_s(
                Loaded(cluster, nodes * cluster.devices_per_node, BYTES / cluster.devices_per_node)
            ),
            "checkpoint": stored,
        }
    )


@pytest.mark.parametrize("name", ["dgx-a100-80gb", "dgx-h100", "aws-p5", "gb200-nvl72", "frontier"])
def test_tiers_of_training_read_as_servers_do(name):
    cluster = two_nodes(name)
    tiers, per_node = training_rates(cluster), cluster.devices_per_node
    assert tiers.back * per_node == pytest.approx(cluster.rates.copies(per_node))
    assert tiers.ssd_read * per_node == pytest.approx(cluster.rates.ssd_read)
    assert tiers.ssd_write * per_node == pytest.approx(cluster.rates.ssd_write)
    assert tiers.remote_read * per_node == pytest.approx(
        cluster.rates.file_read(cluster.nodes_for(cluster.devices))
    )


def test_a_stated_rate_of_host_copies_moves_all_readers():
    cluster = two_nodes("dgx-h100")
    before = host_seconds(cluster)
    slow = cluster.model_copy(update={"node": cluster.node.model_copy(update={"host_copy_bytes_s": 53e9})})
    vars(slow).pop("_rates", None)
    after = host_seconds(slow)
    agree(after)
    for who, seconds in before.items():
        assert after[who] == pytest.approx(8 * seconds), who


def test_devices_behind_one_root_share_it():
    rates = clusters.get("dgx-a100-80gb").rates
    assert rates.copies(1) == rates.link
    assert rates.copies(2) == rates.link
    assert rates.copies(3) == pytest.approx(1.5 * rates.link)
    assert rates.copies(8) == 4 * rates.link
    assert rates.copies(12) == pytest.approx(6 * rates.link)


@pytest.mark.parametrize("name", clusters.names())
def test_a_send_carries_no_more_than_its_wires(name):
    cluster = clusters.get(name)
    rates = cluster.rates
    for devices in (1, 2, cluster.devices_per_node):
        nic = cluster.network.bandwidth / min(cluster.network.nics_per_node, cluster.devices_per_node)
        assert rates.sends(devices) <= devices * nic
        for index, level in enumerate(cluster.levels):
            assert rates.sends(devices, index) <= devices * level.bandwidth
    assert rates.nics <= rates.wire


def test_every_limit_of_a_shipped_cluster_has_a_source():
    for name in clusters.names():
        for limit in clusters.get(name).rates.limits().values():
            assert limit.source
            assert limit.bytes_s > 0 or "SSD" in limit.source or "storage" in limit.source, (name, limit)
