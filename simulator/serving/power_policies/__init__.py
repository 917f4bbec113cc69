"""Power policies by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from simulator.serving.power_policies.base import PowerPolicy
from simulator.serving.power_policies.brake_only import BrakeOnly
from simulator.serving.power_policies.polca import Polca
from simulator.serving.question.policies import make_policy

power_policies: Mapping[str, type[PowerPolicy]] = MappingProxyType(
    {kind.name: kind for kind in (BrakeOnly, Polca)}
)


make_power_policy = partial(make_policy, "power policy", power_policies)
"""The power policy of a name with its parameters (`make_policy`)."""

__all__ = ["PowerPolicy", "make_power_policy", "power_policies"]
