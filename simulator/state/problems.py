"""State fields that a cluster cannot carry out."""

from __future__ import annotations

from hwmodels.cluster import Cluster
from hwmodels.errors import InputError
from simulator.state.levels import level_devices
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


def _formats(cluster: Cluster, policy: StatePolicy) -> str:
    """A device converts to a format of products only if it multiplies it."""
    named = {"wire.gather": policy.wire.gather, "wire.reduce": policy.wire.reduce} if policy.wire else {}
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


def _unread(cluster: Cluster, policy: StatePolicy) -> str:
    named = next((name for name in ("place", "update", "sync") if getattr(policy, name) is not None), "")
    return f"{named}: is not read yet" if named else ""


CHECKS = (_levels, _formats, _unread)
