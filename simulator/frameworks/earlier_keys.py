"""Keys of frameworks in files of earlier versions: where they are now. Read for one version, and named."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from core.errors import Notice, shown
from simulator.levers import LEVERS

GROUPED = {
    "host_seconds_per_kernel": "host.seconds_per_kernel",
    "host_seconds_per_rank": "host.seconds_per_rank",
    "fetch_seconds": "host.fetch_seconds",
    "mask_seconds": "host.mask_seconds",
    "exchange_seconds": "host.exchange_seconds",
    "reads_token_counts": "host.reads_token_counts",
    "product_share": "kernels.product_share",
    "norm": "kernels.norm",
    "repeats_norms": "kernels.repeats_norms",
    "gated_activation": "kernels.gated_activation",
    "swaps_batch": "kernels.swaps_batch",
    "scans_batch_first": "kernels.scans_batch_first",
    "splits_projection": "kernels.splits_projection",
    "stacks_activations": "kernels.stacks_activations",
    "clamps_apart": "kernels.clamps_apart",
    "metric_passes": "kernels.metric_passes",
    "gathers_by_product": "kernels.gathers_by_product",
    "optimizer_bytes_per_parameter": "kernels.optimizer_bytes_per_parameter",
    "cast_passes": "casts.passes",
    "cast_launches": "casts.launches",
    "shared_casts": "casts.shared",
    "casts_weights": "casts.weights",
    "casts_gradients": "gradients.cast",
    "clears_working_gradients": "gradients.clears_working",
    "adds_first_gradient": "gradients.adds_first",
    "gradient_passes": "gradients.copy_passes",
    "scatter_from_zero": "gradients.scatter_from_zero",
    "bucket_parameters": "gradients.bucket_parameters",
    "bucket_parameters_per_rank": "gradients.bucket_parameters_per_rank",
    "gather_bytes": "gathers.bytes",
    "gathers_by_broadcast": "gathers.by_broadcast",
    "gathers_a_layer": "gathers.a_layer",
    "gathers_again": "gathers.again",
    "reuse_parameters": "gathers.reuse_parameters",
    "prefetch_parameters": "gathers.prefetch_parameters",
    "context_bytes": "memory.context_bytes",
    "buffer_bytes_per_group": "memory.buffer_bytes_per_group",
    "bucket_bytes": "memory.bucket_bytes",
    "separate_master": "memory.separate_master",
    "optimizer_gradient_bytes": "memory.optimizer_gradient_bytes",
    "working_gradient_bytes": "memory.working_gradient_bytes",
    "fragmentation": "memory.fragmentation",
}
"""Key paths of what version 0.8 stated in one flat list."""


def moved_keys(keys: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keys of a framework of an earlier version into those of today's, and plan fields.

    Raises:
        ValueError: a part that is no mapping.
    """
    current: dict[str, Any] = {}
    for name, value in keys.items():
        group, _, key = GROUPED.get(name, "").partition(".")
        if key:
            within = current.get(group, {})
            if not isinstance(within, Mapping):
                raise ValueError(f"{group}: a mapping is needed, found {shown(within)}")
            current[group] = {**within, key: value}
        elif isinstance(current.get(name), Mapping) and isinstance(value, Mapping):
            current[name] = {**current[name], **value}
        elif name not in LEVERS:
            current[name] = value
    levers = {name: value for name, value in keys.items() if name in LEVERS}
    if current.get("selective") == "modules":
        del current["selective"]
        levers["recompute_modules"] = keys.get("modules", [])
    current.pop("modules", None)
    # Numbers of a file may carry their source.
    plain = {n: v["value"] if isinstance(v, Mapping) and "value" in v else v for n, v in levers.items()}
    return current, plain


def say_moved(keys: Mapping[str, Any], where: str) -> None:
    """Warn of keys of a user's file that stand elsewhere now."""
    if levers := [name for name in keys if name in LEVERS]:
        _warn(
            f"{where}: {', '.join(levers)} became plan fields and are read in this version only; write them "
            "under 'plan' of a scenario or recipe, or 'defaults' of a framework"
        )
    if grouped := [name for name in keys if name in GROUPED]:
        named = ", ".join(f"{name} is {GROUPED[name]}" for name in grouped)
        _warn(f"{where}: {named} now; the old spelling is read in this version only")


def _warn(message: str) -> None:
    warnings.warn(message, Notice, 3)
