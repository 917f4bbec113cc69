"""State fields that a cluster cannot carry out."""

from __future__ import annotations

from core.errors import InputError
from hwmodels.cluster import Cluster
from simulator.state.levels import level_devices
from simulator.state.place import STATE_CLASSES
from simulator.state.policy import PLAIN, StatePolicy
from simulator.state.wire import WIRE_FORMATS


def policy_problem(cluster: Cluster, policy: StatePolicy) -> str:
    """Why a cluster cannot carry out a policy, with its key; empty if it can."""
    if policy == PLAIN:
        return ""
    return next((problem for check in CHECKS if (problem := check(cluster, policy))), "")


def _levels(cluster: Cluster, policy: StatePolicy) -> str:
    if policy.shard is None:
        return ""
    for kind, level in policy.shard:
        try:
            if level:
                level_devices(cluster, level)
        except InputError as error:
            return f"shard.{kind}: {error.problem}"
    return ""


CODED = "gather", "reduce", "send"
"""Fields of ``wire`` that name a format."""


def _formats(cluster: Cluster, policy: StatePolicy) -> str:
    """A device converts to a format of products only if it multiplies it."""
    named = {f"wire.{name}": getattr(policy.wire, name) for name in CODED} if policy.wire else {}
    if policy.sync:
        named["sync.payload"] = policy.sync.payload
    able = [
        name for name, form in WIRE_FORMATS.items() if not form.product or _multiplies(cluster, form.product)
    ]
    for key, name in named.items():
        if name and name not in able:
            return f"{key}: {cluster.device.name} does not convert to {name}; it has {', '.join(able)}"
    return ""


def _multiplies(cluster: Cluster, form: str) -> bool:
    try:
        cluster.device.peak(form)
    except InputError:
        return False
    return True


def _tiers(cluster: Cluster, policy: StatePolicy) -> str:
    """Tiers that the nodes have."""
    if policy.place is None:
        return ""
    for kind in STATE_CLASSES:
        shares = policy.place.of(kind)
        if (shares.host or shares.nvme) and (cluster.node is None or cluster.node.host_bytes is None):
            return f"place.{kind}: {cluster.name} states no host memory; add node.host_bytes to the cluster"
        drives = cluster.full_node.ssds
        if shares.nvme and (drives is None or not drives.count):
            return (
                f"place.{kind}.nvme: the nodes of {cluster.name} have no SSDs (node.ssds); "
                "host and file_system are left"
            )
    return ""


def _updates(cluster: Cluster, policy: StatePolicy) -> str:
    """The host updates what lies there."""
    update, place = policy.update, policy.place
    if update is None or update.on == "device":
        return ""
    shares = place.optimizer if place else None
    if shares is None or not (shares.automatic or shares.off_device):
        return "update.on: host updates state that lies on the device; place.optimizer.host is 0"
    return ""


def _sync(cluster: Cluster, policy: StatePolicy) -> str:
    """An exchange in every step is the reduction of gradients, whose format is ``wire.reduce``."""
    sync = policy.sync
    if sync is None:
        return ""
    if not sync.apart and WIRE_FORMATS[sync.payload].coded:
        return f"sync.payload: with every: 1 gradients are exchanged; wire.reduce: {sync.payload} says so"
    if sync.link_gbps == 0:
        return "sync.link_gbps: a link without bandwidth"
    return ""


CHECKS = (_levels, _formats, _tiers, _updates, _sync)
