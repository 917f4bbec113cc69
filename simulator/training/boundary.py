"""What pipeline stages send each other: boundary tensors, and the gradient of a tied embedding.

Each hop of a tensor is priced on the links that it crosses. Stages are blocks of ``pipeline_stride``
neighbouring ranks. With tensor parallelism of 4 in nodes of 8, every other hop stays inside a node; where a
block fills a node, all hops cross the network.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodels.cluster import Cluster
from hwmodels.collectives.cost import Cost
from simulator.ops.ends import padded_vocabulary
from simulator.plan import Plans
from simulator.setting import Setting
from simulator.state.wire import WIRE_FORMATS, codec_bytes

FIELDS = (
    "tensor",
    "pipeline",
    "context",
    "data",
    "micro_batch",
    "sequence_parallel",
    "rank_order",
    "overlap_pipeline",
    "policy",
)
"""The plan fields that the cost of a boundary tensor depends on."""

PERIODS = 8
"""Hops of a long pipeline that are evaluated, in devices of a domain: their levels repeat."""


def boundary_transfer(setting: Setting, plans: Plans) -> Cost:
    """Cost of sending one boundary tensor to the next stage, shape (plans,); of the first replica.

    A blocking send is part of its rank's work, so the rank with the two slowest hops sets the pace. Sends
    that overlap computation delay a micro batch by the mean of all hops.
    """
    distinct, index = plans.unique(*FIELDS)
    shares = level_shares(setting.cluster, distinct)
    cost = Cost.none((len(distinct),))
    for level, share in enumerate(shares):
        if share.any():
            cost = cost + hop_transfer(setting, distinct, level) * share
    return cost[index]


def hop_transfer(setting: Setting, plans: Plans, level: int) -> Cost:
    """Cost of sending one boundary tensor over a hop that crosses a level, shape (plans,).

    With sequence parallelism a boundary tensor is already sharded over the tensor-parallel ranks; without
    it each rank sends a slice and the receivers gather (Narayanan et al. 2021, section 4.1).
    """
    cluster, elements = setting.cluster, setting.tokens(plans) * setting.model.hidden
    width, coding = sent_format(setting, plans, elements / plans.tensor)
    size = elements * width
    cost = cluster.hop_cost(size / plans.tensor, plans.pipeline_stride, level)
    unsplit = (plans.sequence_parallel == 0) & (plans.tensor > 1)
    if unsplit.any():
        cost = cost + cluster.collective_cost("all_gather", size, plans.tensor, 1) * unsplit
    return replace(cost, seconds=cost.seconds + coding + setting.framework.host.exchange_seconds)


def sent_format(
    setting: Setting, plans: Plans, elements: np.ndarray
) -> tuple[np.ndarray | float, np.ndarray | float]:
    """Bytes of a sent element, and seconds to encode and decode all elements of a message; shape (plans,)."""
    wires = [policy.wire.send if policy.wire else None for policy in plans.policies]
    if not any(wires):
        return float(setting.width), 0.0
    forms = [WIRE_FORMATS[name] if name else None for name in wires]
    width = np.array([form.bytes if form else float(setting.width) for form in forms])[plans.policy]
    coded_bytes = np.array([codec_bytes(form, 1.0, 1.0) if form else 0.0 for form in forms])[plans.policy]
    coding = setting.kernels.memory_bound(coded_bytes * elements)
    return width, np.where(coded_bytes > 0, coding, 0.0)


def level_shares(cluster: Cluster, plans: Plans) -> NDArray[np.float64]:
    """Share of a boundary tensor's hops that each level of links carries, shape (levels + 1, plans)."""
    hops = np.minimum(np.maximum(plans.pipeline - 1, 1), PERIODS * cluster.domain)
    hop = np.arange(hops.max(initial=1))[:, np.newaxis]
    level = np.where(hop < hops, cluster.level_between(plans.pipeline_stride, hop, hop + 1), -1)
    levels = np.arange(len(cluster.levels) + 1)[:, np.newaxis, np.newaxis]
    mean = (level == levels).sum(axis=1) / hops
    if len(hop) == 1:
        return mean
    # A rank between the ends sends over the hop before it and over the one behind it.
    before, behind = level[:-1], level[1:]
    slower = np.maximum(before, behind) * len(levels) + np.minimum(before, behind)
    slowest = np.argmax(np.where(behind >= 0, slower, -1), axis=0)[np.newaxis]
    two = np.concatenate([np.take_along_axis(side, slowest, axis=0) for side in (before, behind)])
    pace = (two == levels).mean(axis=1)
    return np.where((plans.overlap_pipeline == 0) & (hops > 1), pace, mean)


def tied_embedding(setting: Setting, plans: Plans) -> Cost:
    """All-reduce of the tied embedding's gradient between the first and the last stage, shape (plans,)."""
    if not setting.model.tied_embeddings:
        return Cost.none((len(plans),))
    distinct, index = plans.unique("tensor", "context", "data", "pipeline", "rank_order")
    rows = padded_vocabulary(setting.model, distinct.tensor) / distinct.tensor
    size = setting.model.hidden * rows * setting.choices.reduce_bytes
    apart = distinct.pipeline_stride * (distinct.pipeline - 1)
    cost = setting.cluster.collective_cost("all_reduce", size, 2, np.maximum(apart, 1))
    return (cost * (distinct.pipeline > 1))[index]
