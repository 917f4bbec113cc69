"""Time on a device's compute stream, by kernel class, and the communication that goes with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from hwmodels.collectives.cost import Cost, Links
from simulator.layout.tower import FROZEN
from simulator.ops import Collective, Op, backward
from simulator.ops.adapters import is_adapter
from simulator.pricing import NO_TIME, price
from simulator.setting import Setting

ROUTED = "routed"
"""Part of a layer that the levers of its ops change: dispatcher and expert kernels."""


class Priced(NamedTuple):
    """An op and its seconds, shape (plans,)."""

    op: Op
    seconds: np.ndarray


def price_passes(setting: Setting, *lists: list[Op]) -> list[list[Priced]]:
    """Price lists of forward ops and their backward ops in one call.

    An op shared by lists is priced once. Idle ops are left out.
    """
    distinct = {id(op): op for ops in lists for op in ops}
    passes = [[op, *_backward(setting, op)] for op in distinct.values()]
    seconds = iter(price([op for ops in passes for op in ops], setting.prices))
    prices = {
        key: [Priced(op, next(seconds)) for op in ops] for key, ops in zip(distinct, passes, strict=True)
    }
    return [
        [
            entry
            for direction in (slice(1), slice(1, None))
            for op in ops
            for entry in prices[id(op)][direction]
            if entry.seconds is not NO_TIME
        ]
        for ops in lists
    ]


def with_routed(setting: Setting, prices: list[Priced], ops: list[Op]) -> list[Priced]:
    """Price the ops of a layer that differs from a priced one by its ops of routed tokens alone.

    These stand together in the forward pass, and in the backward pass.
    """
    routed = price_passes(setting, [op for op in ops if op.part == ROUTED])[0]
    merged: list[Priced] = []
    for backward_pass in (False, True):
        entries = [entry for entry in prices if bool(entry.op.gradient) is backward_pass]
        parts = [entry.op.part for entry in entries]
        place = parts.index(ROUTED) if ROUTED in parts else len(parts)
        others = [entry for entry in entries if entry.op.part != ROUTED]
        routed_pass = [entry for entry in routed if bool(entry.op.gradient) is backward_pass]
        merged += [*others[:place], *routed_pass, *others[place:]]
    return merged


def _backward(setting: Setting, op: Op) -> list[Op]:
    """Backward ops of an op; of frozen weights no gradient, of a frozen tower none.

    Log-probabilities in pieces compute that of the output layer whoever trains it (prime-rl, lm_head.py:
    grad_weight).
    """
    if op.part == FROZEN:
        return []
    gradients = backward([op])
    pieces = op.name == "output_layer" and setting.choices.cross_entropy == "log-probabilities"
    if setting.training.adapter is None or is_adapter(op) or pieces:
        return gradients
    return [each for each in gradients if each.gradient != "weight"]


@dataclass
class KernelTimes:
    """Kernels that run one after another.

    ``seconds`` maps a kernel class (gemm, attention, norm, activation, ...) to device time, shape (plans,);
    ``launches`` counts kernels that the host launches from Python, ``looped`` those from a loop in C++.
    """

    seconds: dict[str, np.ndarray] = field(default_factory=dict)
    launches: float | np.ndarray = 0.0
    looped: float | np.ndarray = 0.0

    @classmethod
    def of(cls, ops: Iterable[Priced]) -> KernelTimes:
        """The kernels among priced ops."""
        seconds: dict[str, np.ndarray] = {}
        launches = looped = 0.0
        for op, time in ops:
            if not isinstance(op, Collective):
                seconds[op.kind] = seconds[op.kind] + time if op.kind in seconds else time
                launches, looped = launches + op.launches, looped + op.looped
        return cls(seconds, launches, looped)

    def add(
        self,
        kind: str,
        seconds: np.ndarray,
        launches: float | np.ndarray = 1,
        looped: float | np.ndarray = 0,
    ) -> None:
        """Append kernels of one class."""
        self.seconds[kind] = self.seconds.get(kind, 0.0) + np.asarray(seconds, dtype=float)
        self.launches = self.launches + launches
        self.looped = self.looped + looped

    def extend(self, other: KernelTimes, times: float | np.ndarray = 1.0) -> None:
        """Append another list of kernels, some number of times."""
        for kind, seconds in other.seconds.items():
            self.add(kind, seconds * times, 0)
        self.launches = self.launches + other.launches * times
        self.looped = self.looped + other.looped * times

    @property
    def device(self) -> np.ndarray:
        """Device seconds of all kernels, shape (plans,)."""
        return sum(self.seconds.values(), np.zeros(()))


def sum_seconds(ops: Iterable[Priced], shape: tuple[int, ...] = ()) -> np.ndarray:
    """Summed seconds of ops, broadcast to at least ``shape``."""
    return sum((seconds for _, seconds in ops), np.zeros(shape))


def sum_costs(setting: Setting, ops: Iterable[Priced], shape: tuple[int, ...] = ()) -> Cost:
    """Summed cost of all collectives among priced ops, broadcast to at least ``shape``.

    A faster library fills links for a shorter time with the same bytes.
    """
    sends = list(ops)

    def links() -> Links:
        total = Cost.none(shape).links()
        for op, _ in sends:
            if isinstance(op, Collective):
                cost = setting.cluster.collective_cost(op.operation, op.bytes, op.size, op.stride)
                busy, bytes_moved = cost.links()
                total = Links(
                    total.busy + busy * op.repeats / op.speedup, total.bytes + bytes_moved * op.repeats
                )
        return total

    return Cost(sum_seconds(sends, shape), links)
