"""Communication as a segment: its seconds and its demand on links."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from hwmodels.cluster import Cluster
from hwmodels.collectives.cost import Cost
from hwmodels.topology import NETWORK
from simulator.engine.graph import Stream
from simulator.training.step_graph.step import NO_LOAD, LinkDemand, StreamWork


def level_names(cluster: Cluster) -> list[str]:
    """The levels of a cost record: those of the cluster, innermost first, then the network."""
    return [*(level.name for level in cluster.levels), NETWORK]


def load_of(cluster: Cluster, cost: Cost) -> LinkDemand:
    """Demand of the communication of one plan on links.

    The time of the communication already assumes that groups of its kind on one node share NICs.
    """
    if scalar(cost.seconds) <= 0:
        return NO_LOAD
    names = level_names(cluster)
    sent = np.broadcast_to(cost.bytes.reshape(len(cost.bytes), -1)[:, 0], len(names))
    bytes_by_link = tuple((name, size) for name, size in zip(names, sent.tolist(), strict=True) if size > 0)
    share = scalar(cost.share)
    return LinkDemand(names[int(scalar(cost.level))], share, bytes_by_link) if share > 0 else NO_LOAD


def communication(cluster: Cluster, name: str, cost: Cost, stream: Stream, part: str = "") -> StreamWork:
    """A communication of one plan."""
    return StreamWork(name, scalar(cost.seconds), stream, part, load=load_of(cluster, cost))


def scalar(value: ArrayLike) -> float:
    """The value as a float; it holds one plan."""
    return float(np.asarray(value).reshape(-1)[0])
