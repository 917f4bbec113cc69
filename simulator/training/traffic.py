"""Bytes that a training step puts on each level of links.

The functions that price a step are linear in what its collectives take. Given a cluster whose collectives
answer with bytes instead of seconds, they add up the traffic of the very same calls.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import PrivateAttr

from hwmodels.cluster import Cluster
from hwmodels.collectives.traffic import traffic
from simulator.engine.graph import NONE
from simulator.engine.timeline import Timeline
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training import predict
from simulator.training.step_graph.loads import NETWORK
from simulator.training.step_graph.streams import GRADIENTS, PARAMETERS

NOTHING = "", 0.0
"""The level and rate of what sends nothing."""

ANY_SCHEDULE = "1f1b"
"""What is sent does not depend on the order of passes; this one has a closed form."""


class _Meter(Cluster):
    """A cluster whose collectives return the bytes that a rank sends over one level."""

    _level: int = PrivateAttr(0)

    def collective(
        self,
        operation: str,
        bytes_: ArrayLike,
        size: ArrayLike,
        stride: ArrayLike = 1,
        concurrent: bool = True,
        in_switch: bool = True,
    ) -> NDArray[np.float64]:
        """Return bytes; arguments as of ``Cluster.collective``."""
        widths = [level.devices for level in self.levels]
        return traffic(operation, bytes_, size, stride, widths)[self._level]


def step_traffic(setting: Setting, plan: Plan) -> dict[str, dict[str, float]]:
    """Bytes that a device of the slowest stage sends in a step, by level of links and kind of communication.

    Levels are those of the cluster, innermost first, then "network"; kinds are those of
    ``Step.communication``.
    """
    names = [*(level.name for level in setting.cluster.levels), NETWORK]
    plans = Plans.of(plan.model_copy(update={"schedule": ANY_SCHEDULE}))
    found: dict[str, dict[str, float]] = {}
    for index, name in enumerate(names):
        meter = _Meter.model_construct(**dict(setting.cluster))
        meter._level = index
        moved = predict(replace(setting, cluster=meter), plans).communication
        found[name] = {kind: float(np.ravel(size)[0]) for kind, size in moved.items() if np.any(size > 0)}
    return found


def link_bandwidth(cluster: Cluster) -> dict[str, float]:
    """B/s that a device can send over each level of links; its share of the node's NICs for the network."""
    inside = {level.name: level.bandwidth for level in cluster.levels}
    return inside | {NETWORK: cluster.network.bandwidth / cluster.devices_per_node}


def assign_traffic(timeline: Timeline, setting: Setting, plan: Plan) -> None:
    """Give every communication task of a timeline its bytes, at the mean rate of its kind.

    Each goes by the outermost level that its kind reaches, and one that shares links moves the bytes that it
    would alone, more slowly; what runs inside passes that are one task is not counted.
    """
    seconds = predict(setting, Plans.of(plan.model_copy(update={"schedule": ANY_SCHEDULE}))).communication
    rates: dict[str, tuple[str, float]] = {}
    for level, kinds in step_traffic(setting, plan).items():
        rates |= {kind: (level, size / float(np.ravel(seconds[kind])[0])) for kind, size in kinds.items()}
    graph = timeline.graph
    # Full sharding counts its gathers and reductions as one kind.
    rates = {PARAMETERS: rates.get(GRADIENTS, NOTHING), GRADIENTS: rates.get(PARAMETERS, NOTHING), **rates}
    rate_of = [rates.get(part, NOTHING) for part in graph.parts]
    spans = (timeline.ends - timeline.starts).tolist()
    graph.traffic[:] = [
        (task, level, graph.seconds[task] * rate)
        for task, part in enumerate(graph.part)
        if part != NONE and spans[task] > 0
        for level, rate in [rate_of[part]]
        if rate > 0
    ]
