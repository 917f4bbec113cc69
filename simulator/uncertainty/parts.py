"""Parts of a step whose errors are independent, and the exposure of each plan to them.

An exposure is the relative change of the step time per relative error of a part: its share of the step. The
bubble and jitter are idle time that grows with the passes, so they belong to the parts of a pass. Hidden
communication is the exposure to errors of overlap. Shipped errors are those of whole steps; what the kernel
and collective calibrations state about a device and a fabric adds to them.
"""

from __future__ import annotations

from statistics import median

import numpy as np

from hwmodels.kernels.memory_bound import KINDS
from simulator.setting import Setting
from simulator.site import KERNELS
from simulator.training import Step

PARTS = (
    "products",
    "experts",
    "attention",
    "memory",
    "host",
    "node",
    "network",
    "exchange",
    "overlap",
    "offload",
    "whole",
)
"""Matrix products, products of routed experts, attention, memory-bound kernels, waiting for the host,
collectives inside a node and across nodes, exchange with experts, overlap of communication, state off the
device, and the whole step (clocks, jitter)."""

ONCE = ("gradients", "parameters", "optimizer", "offload", "sync")
"""Parts of the breakdown that run once a step, beside which no bubble stands."""

NOT_KERNELS = (*ONCE, "recompute", "variation", "launch", "bubble", "tensor", "context", "expert", "pipeline")

LINKS = ("tensor", "context", "pipeline", "gradients", "parameters")

NINETY = 1.645
"""90 % of a normal error is within so many standard deviations."""

NINETY_OVER_MEDIAN = 2.44
"""90th percentile over median of the size of a normal error (1.645 / 0.674)."""

LINK_ERROR = 0.15
"""90th percentile of collectives inside a node, as the calibrations of NVLink state it."""

NO_MEASUREMENT = 0.2
"""Median error of fabrics without published rows."""


def exposure(step: Step) -> np.ndarray:
    """Exposure of the step time to each of ``PARTS``, shape (plans, parts)."""
    count = len(step.time)
    none = np.zeros(count)
    share = {name: np.broadcast_to(part / step.time, count) for name, part in step.seconds.items()}
    parts = {name: np.zeros(count) for name in PARTS}
    for name, part in share.items():
        if name not in NOT_KERNELS:
            parts[KERNELS.get(name, "memory")] = parts[KERNELS.get(name, "memory")] + part
    kernels = sum(parts.values())
    again = share["recompute"] + share["variation"]
    for name in ("products", "experts", "attention", "memory"):
        parts[name] = parts[name] * (1 + again / np.maximum(kernels, 1e-12))
    parts["host"] = share["launch"]
    far = {kind: _network_share(step, kind) for kind in (*LINKS, "expert")}
    passes = [kind for kind in LINKS if kind not in ONCE]
    parts["exchange"] = share["expert"]
    parts["node"] = sum((share[kind] * (1 - far[kind]) for kind in passes), none)
    parts["network"] = sum((share[kind] * far[kind] for kind in passes), none)
    busy = sum(parts.values())
    for name in parts:
        parts[name] = parts[name] * (1 + share["bubble"] / np.maximum(busy, 1e-12))
    for kind in ("gradients", "parameters"):
        parts["node"] = parts["node"] + share[kind] * (1 - far[kind])
        parts["network"] = parts["network"] + share[kind] * far[kind]
    parts["memory"] = parts["memory"] + share["optimizer"]
    parts["offload"] = share.get("offload", np.zeros(count)) + share.get("sync", np.zeros(count))
    hidden = (np.maximum(np.ravel(step.sent[kind].seconds) / step.time - share[kind], 0.0) for kind in far)
    parts["overlap"] = sum(hidden, none)
    parts["whole"] = np.ones(count)
    return np.stack([parts[name] for name in PARTS], axis=1)


def has_parts(step: Step) -> bool:
    """Whether a step has the breakdown that an exposure needs; those of the event engine have none."""
    return "gemm" in step.seconds and bool(step.sent)


def _network_share(step: Step, kind: str) -> np.ndarray:
    """Share of one kind of communication that crosses the network, shape (plans,)."""
    busy = step.sent[kind].busy
    if len(busy) == 1:
        return np.zeros(len(step.time))
    busy = np.broadcast_to(busy, (len(busy), len(step.time)))
    return busy[-1] / np.maximum(busy.sum(axis=0), 1e-30)


def calibration_errors(setting: Setting) -> dict[str, float]:
    """Standard deviation of the relative error of parts, as calibrations of device and links state it."""
    kernels, network = setting.kernels, setting.cluster.network_error
    across = NINETY_OVER_MEDIAN * (NO_MEASUREMENT if network is None else max(network, 0.05))
    grouped = kernels.error("grouped_gemm", setting.linear_dtype)[1] if setting.model.moe else 0.0
    ninety = {
        "products": kernels.error("gemm", setting.linear_dtype)[1],
        # Steps price experts as dense products, which are unmeasured; grouped products of serving are.
        "experts": grouped,
        "attention": kernels.error("attention", setting.core_dtype)[1],
        "memory": median(kernels.error(kind)[1] for kind in KINDS),
        "node": LINK_ERROR,
        "network": across,
        "exchange": across if setting.cluster.devices > setting.cluster.domain else LINK_ERROR,
    }
    return {name: ninety.get(name, 0.0) / NINETY for name in PARTS}
