"""Placements of state that a search tries with ``offload``: as little off the device as lets a plan fit."""

from __future__ import annotations

import numpy as np

from core.errors import InputError
from hwmodels.cluster import Cluster
from simulator.state.place import Tiers, Update
from simulator.state.policy import PLAIN, StatePolicy
from simulator.training.memory import StageMemory

OPTIMIZER_SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the optimizer's state on the host. The share that the device updates is the closed form's."""
UPDATE = Update.model_validate({"on": "host", "share_on_device": "auto"})
WHOLE = {"host": 1.0}


def placements(cluster: Cluster) -> tuple[StatePolicy, ...]:
    """Placements in the order of what leaves the device; the first leaves all state there.

    Each one holds at most as much on the device as the one before it: the optimizer's state by quarters on
    the host, then the gradients too, then the optimizer's state on the SSDs of nodes that have them.

    Raises:
        InputError: the cluster states no host memory.
    """
    if cluster.node is None or cluster.node.host_bytes is None:
        raise InputError(
            f"{cluster.name} states no host memory; add node.host_bytes to the cluster", "offload"
        )
    places = [{"optimizer": {"host": share}} for share in OPTIMIZER_SHARES]
    places.append({"gradients": WHOLE, "optimizer": WHOLE})
    drives = cluster.full_node.ssds
    if drives is not None and drives.count:
        places.append({"gradients": WHOLE, "optimizer": {"nvme": 1.0}})
    return PLAIN, *(StatePolicy(place=Tiers.model_validate(place), update=UPDATE) for place in places)


def fits_tiers(cluster: Cluster, memory: StageMemory) -> np.ndarray | bool:
    """Whether what lies off the device fits the tiers of a node, shape (plans,); True where nothing does."""
    if not memory.tiers:
        return True
    node, drives = cluster.full_node, cluster.full_node.ssds
    room = {"host": node.host_bytes, "nvme": drives.count * drives.bytes if drives else None}
    return np.logical_and.reduce(
        [memory.on_tier(tier) <= there for tier, there in room.items() if there is not None]
    )
