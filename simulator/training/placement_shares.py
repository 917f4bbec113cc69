"""Shares of state on each tier, of arrays of plans."""

from __future__ import annotations

import numpy as np

from simulator.state.place import UNIT_PARAMETERS, Shares, StateClass, Tiers, Update
from simulator.training.sharding import Sharding

NOTHING_PLACED = Tiers.model_validate({})


def placed(sharding: Sharding) -> bool:
    """Whether any plan keeps state off the device, or updates it elsewhere."""
    policies = sharding.plans.policies
    return any(policy.place is not None or policy.update is not None for policy in policies)


def share_on(sharding: Sharding, kind: StateClass, tier: str = "") -> np.ndarray:
    """Share of a class of state that lies on a tier, or off the device, shape (plans,).

    A share that is still ``auto`` counts as 0.
    """

    def of(shares: Shares) -> float:
        value = getattr(shares, tier) if tier else shares.off_device
        return 0.0 if value == "auto" else float(value)

    return sharding.by_policy(lambda policy: of((policy.place or NOTHING_PLACED).of(kind)))


def unit_share(
    sharding: Sharding, kind: StateClass, layers: np.ndarray, count: np.ndarray | float
) -> np.ndarray:
    """Share of a class that one copy moves, shape (..., plans): a layer's, or that of a number of parameters.

    Args:
        sharding: of the plans.
        kind: class of state.
        layers: layers of a stage, shape (..., plans).
        count: parameters of the class that one device holds, shape (..., plans).
    """
    layer = 1 / np.maximum(layers, 1)
    size = sharding.by_policy(lambda policy: UNIT_PARAMETERS[(policy.place or NOTHING_PLACED).of(kind).unit])
    if kind == "activations":
        return np.where(np.isinf(size), 1.0, layer)
    return np.clip(np.where(size > 0, size / np.maximum(count, 1.0), layer), layer, 1.0)


def units_ahead(sharding: Sharding, kind: StateClass) -> np.ndarray:
    """Units of a class that are copied ahead of their use, shape (plans,)."""
    return sharding.by_policy(lambda policy: (policy.place or NOTHING_PLACED).of(kind).prefetch)


def moments_share(sharding: Sharding) -> np.ndarray:
    """Share of the optimizer's state that may leave, shape (plans,): that of the moments where the 32-bit
    weights stay on the device."""
    mixed = sharding.setting.training.mixed and sharding.setting.framework.memory.separate_master

    def of(update: Update | None) -> float:
        return 8 / 12 if mixed and update is not None and update.master_on_device else 1.0

    return sharding.by_policy(lambda policy: of(policy.update))
