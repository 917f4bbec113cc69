"""Shares of state on each tier, of arrays of plans."""

from __future__ import annotations

import numpy as np

from simulator.state.place import Shares, StateClass, Tiers
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
