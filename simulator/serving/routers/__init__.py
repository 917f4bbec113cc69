"""Routers by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hwmodels.errors import UnknownNameError
from hwmodels.loading import build
from simulator.serving.routers.base import Router, Target
from simulator.serving.routers.least_loaded import LeastLoaded
from simulator.serving.routers.power_of_two import PowerOfTwo
from simulator.serving.routers.prefix_aware import PrefixAware
from simulator.serving.routers.round_robin import RoundRobin

routers: Mapping[str, type[Router]] = MappingProxyType(
    {kind.name: kind for kind in (RoundRobin, LeastLoaded, PowerOfTwo, PrefixAware)}
)


def make_router(name: str, options: Mapping[str, Any], where: str = "") -> Router:
    """The router of that name with its parameters.

    Raises:
        UnknownNameError: no such router (the nearest name is offered).
        InputError: an unknown parameter, or a wrong value.
    """
    if name not in routers:
        raise UnknownNameError("router", name, routers, where)
    return build(routers[name], options, f"{where}_options" if where else f"router {name}")


__all__ = ["Router", "Target", "make_router", "routers"]
