"""Routers by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from simulator.serving.policies import make_policy
from simulator.serving.routers.base import Router, Target
from simulator.serving.routers.least_loaded import LeastLoaded
from simulator.serving.routers.power_of_two import PowerOfTwo
from simulator.serving.routers.prefix_aware import PrefixAware
from simulator.serving.routers.round_robin import RoundRobin

routers: Mapping[str, type[Router]] = MappingProxyType(
    {kind.name: kind for kind in (RoundRobin, LeastLoaded, PowerOfTwo, PrefixAware)}
)


make_router = partial(make_policy, "router", routers)
"""The router of a name with its parameters (`make_policy`)."""

__all__ = ["Router", "Target", "make_router", "routers"]
