"""Scalers by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hwmodels.errors import UnknownNameError
from hwmodels.loading import build
from simulator.serving.scalers.base import Scaler
from simulator.serving.scalers.fixed import FixedReplicas
from simulator.serving.scalers.reactive import Reactive
from simulator.serving.scalers.scheduled import Scheduled

scalers: Mapping[str, type[Scaler]] = MappingProxyType(
    {kind.name: kind for kind in (FixedReplicas, Reactive, Scheduled)}
)


def make_scaler(name: str, options: Mapping[str, Any], where: str = "") -> Scaler:
    """The scaler of that name with its parameters.

    Raises:
        UnknownNameError: no such scaler (the nearest name is offered).
        InputError: an unknown parameter, or a wrong value.
    """
    if name not in scalers:
        raise UnknownNameError("scaler", name, scalers, where)
    return build(scalers[name], options, f"{where}_options" if where else f"scaler {name}")


__all__ = ["Scaler", "make_scaler", "scalers"]
