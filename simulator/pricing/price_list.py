"""Price lists of ops: one array call per kernel class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simulator.ops.op import (
    Attention,
    Collective,
    Decode,
    ExpertLayer,
    MemoryBound,
    Op,
    Product,
    Scan,
    StateStep,
)
from simulator.pricing.cases import (
    Array,
    columns_of,
    common_shape,
    distinct_cases,
    distinct_sizes,
    stacked_sizes,
)
from simulator.pricing.kernels import CALLS
from simulator.pricing.prices import Prices
from simulator.site import Site

NO_TIME = np.zeros(())
"""Seconds of an op that is idle in all cases: zero."""


def price(ops: Sequence[Op], prices: Prices) -> list[Array]:
    """Seconds of each op, in the order of ``ops``; each of shape (cases,), or () where its sizes are scalars.

    Idle ops take ``NO_TIME``.

    Raises:
        InputError: a number format that the device lacks.
    """
    seconds: list[Array] = [NO_TIME] * len(ops)
    calls: dict[tuple[Any, ...], list[int]] = {}
    for index, op in enumerate(ops):
        if not op.is_idle:
            calls.setdefault(kernel_class(op, prices), []).append(index)
    for key, indices in calls.items():
        kind, sizes = CALLS[key[0]]
        rows = [sizes(ops[index]) for index in indices]
        members, shape = [ops[index] for index in indices], common_shape(rows)
        if len(shape) > 1:
            columns, which = columns_of(rows, shape), None
            if isinstance(members[0], Product):
                columns, which = distinct_sizes(columns)
            times = kind(members, prices, *columns)
            if which is not None:
                times = np.take_along_axis(times, which, axis=-1).reshape(len(rows), *shape)
            times = np.broadcast_to(times, (len(rows), *shape))
        else:
            stacked, which = distinct_cases(stacked_sizes(rows, shape))
            times = kind(members, prices, *stacked)
            times = times if which is None else np.take(times, which, axis=-1)
        for index, row in zip(indices, times, strict=True):
            seconds[index] = row * ops[index].repeats
    if prices.site is not None:
        for index, op in enumerate(ops):
            if seconds[index] is not NO_TIME:
                seconds[index] = seconds[index] * _site_factor(op, prices, prices.site)
    return seconds


def _site_factor(op: Op, prices: Prices, site: Site) -> Array | float:
    """Learned factor of an op; the cluster's links already have theirs, which is not that of the exchange."""
    if not isinstance(op, Collective):
        return site.kernel(op.kind)
    if op.kind != "expert" or prices.cluster is None:
        return 1.0
    inside, across = prices.cluster.link_pace
    far = prices.cluster.level_of(op.size, op.stride) == len(prices.cluster.levels)
    return site.factor("exchange") / np.where(far, across, inside)


def kernel_class(op: Op, prices: Prices) -> tuple[Any, ...]:
    """Ops with equal keys are priced in one call."""
    if isinstance(op, Product):
        return _product_form(op, prices), op.dtype, op.weights, op.row_bytes
    if isinstance(op, Attention):
        return "attention", op.dtype, op.kv_dtype, op.causal, op.direction, op.appends, op.latent, op.version
    if isinstance(op, Decode):
        return "decode", op.dtype, op.kv_dtype, op.latent
    if isinstance(op, Scan):
        return "scan", op.dtype, op.direction
    if isinstance(op, StateStep):
        return "state", op.dtype
    if isinstance(op, ExpertLayer):
        return "experts", op.dtype, op.skewed
    if isinstance(op, Collective):
        return "collective", op.operation
    if isinstance(op, MemoryBound):
        return ("memory",)
    raise TypeError(f"an op of unknown class: {type(op).__name__}")


def _product_form(op: Product, prices: Prices) -> str:
    if op.role == "expert" and not prices.experts_as_dense:
        return "grouped"
    served = prices.quantises or prices.served
    return "served" if served and np.all(np.asarray(op.groups) == 1) else "products"
