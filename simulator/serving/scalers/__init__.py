"""Scalers by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from simulator.serving.policies import make_policy
from simulator.serving.scalers.base import Scaler
from simulator.serving.scalers.fixed import FixedReplicas
from simulator.serving.scalers.reactive import Reactive
from simulator.serving.scalers.scheduled import Scheduled

scalers: Mapping[str, type[Scaler]] = MappingProxyType(
    {kind.name: kind for kind in (FixedReplicas, Reactive, Scheduled)}
)


make_scaler = partial(make_policy, "scaler", scalers)
"""The scaler of a name with its parameters (`make_policy`)."""

__all__ = ["Scaler", "make_scaler", "scalers"]
