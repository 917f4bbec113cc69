"""Bytes that a training step puts on each level of links.

The functions that price a step are linear in what its collectives take. Given a cluster whose collectives
answer with bytes instead of seconds, they add up the traffic of the very same calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import PrivateAttr

from hwmodels.cluster import Cluster
from hwmodels.collectives.traffic import traffic
from simulator.costs.setting import Setting
from simulator.engine.graph import DATA
from simulator.engine.timeline import Timeline
from simulator.plan import Plan, Plans
from simulator.training import predict
from simulator.training.step_graph.loads import NETWORK

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
    rates_of = [_rates_by_name(lane.stream, rates) for lane in graph.lanes]
    spans = (timeline.ends - timeline.starts).tolist()
    graph.traffic[:] = [
        (task, level, graph.seconds[task] * rate)
        for task, lane in enumerate(graph.lane)
        if lane >= 0 and spans[task] > 0
        for level, rate in rates_of[lane](graph.name[task])
    ]


def _rates_by_name(
    stream: str, rates: Mapping[str, tuple[str, float]]
) -> Callable[[str], tuple[tuple[str, float], ...]]:
    """How fast tasks of a stream put bytes on which level, by their name."""
    if stream != DATA:
        found = (rates[stream],) if stream in rates else ()
        return lambda _: found
    # Full sharding counts its gathers and reductions as one kind.
    gathers = rates.get("parameters", rates.get("gradients"))
    reductions = rates.get("gradients", gathers)
    by_kind = [() if each is None else (each,) for each in (gathers, reductions)]
    return lambda name: by_kind[0 if name.startswith("gather") else 1]
