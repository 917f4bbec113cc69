"""Priced ops of one layer by the part that they belong to."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from simulator.ops.experts import ROUTING
from simulator.setting import Setting
from simulator.training.overlap import NO_TRANSFER, Transfer
from simulator.training.work import KernelTimes, Priced, sum_costs

ORDER = "projections", "core", "mlp", "routed", "around"
"""Parts of a layer in the order in which they run."""


class LayerParts:
    """Priced ops of a layer by the part that they belong to: linear layers first, part by part."""

    def __init__(self, prices: list[Priced]) -> None:
        self.prices = _linear_first(prices)

    def named(self, *parts: str) -> list[Priced]:
        """All ops of some parts, forward and backward."""
        return [entry for entry in self.prices if entry.op.part in parts]

    def forward(self, *parts: str) -> list[Priced]:
        """Forward ops of some parts."""
        return [entry for entry in self.named(*parts) if not entry.op.gradient]

    def backward(self, gradient: str) -> list[Priced]:
        """Backward ops for the gradients of inputs or of weights."""
        return [entry for entry in self.prices if entry.op.gradient == gradient]

    def between_exchanges(self, gradient: str) -> list[Priced]:
        """Ops of one pass between dispatch to experts and combination."""
        return [
            entry
            for entry in self.prices
            if entry.op.part == "routed" and entry.op.gradient == gradient and entry.op.module != ROUTING
        ]

    def experts(self, gradient: str) -> np.ndarray:
        """Device seconds of the kernels of one pass between dispatch and combination, shape (plans,)."""
        return KernelTimes.of(self.between_exchanges(gradient)).device

    def sent(self, setting: Setting, kind: str, gradient: str, plans: int) -> Transfer:
        """One kind of communication, with no kernels to run beside; seconds of shape (plans,)."""
        sends = [entry for entry in self.prices if entry.op.kind == kind and entry.op.gradient == gradient]
        return Transfer(sum_costs(setting, sends, (plans,))) if sends else NO_TRANSFER


def _linear_first(prices: Iterable[Priced]) -> list[Priced]:
    def place(each: Priced) -> tuple[int, int, bool]:
        return (0 if each.op.role or each.op.beside else 1), ORDER.index(each.op.part), each.op.beside

    return sorted(prices, key=place)
