"""Bytes that a training step puts on each level of links."""

from __future__ import annotations

import numpy as np

from hwmodels.cluster import Cluster
from hwmodels.topology import NETWORK
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training.analytic import predict

ANY_SCHEDULE = "1f1b"
"""Traffic does not depend on the order of passes; this schedule has a closed form."""


def step_traffic(setting: Setting, plan: Plan) -> dict[str, dict[str, float]]:
    """Bytes that a device of the slowest stage sends in a step, by level of links and kind of communication.

    Levels are those of the cluster, innermost first, then "network"; kinds are those of
    ``Step.communication``.
    """
    names = [*(level.name for level in setting.cluster.levels), NETWORK]
    traffic: dict[str, dict[str, float]] = {name: {} for name in names}
    step = predict(setting, Plans.of(plan.model_copy(update={"schedule": ANY_SCHEDULE})))
    for kind, cost in step.sent.items():
        for name, size in zip(names, np.broadcast_to(cost.bytes[:, 0], len(names)).tolist(), strict=True):
            if size > 0:
                traffic[name][kind] = size
    return traffic


def link_bandwidth(cluster: Cluster) -> dict[str, float]:
    """B/s that a device can send over each level of links; its share of the node's NICs for the network."""
    inside = {level.name: level.bandwidth for level in cluster.levels}
    return inside | {NETWORK: cluster.rates.wire / cluster.devices_per_node}
