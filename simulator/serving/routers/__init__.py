"""Routers by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from simulator.serving.question.policies import make_policy
from simulator.serving.routers.adapter_aware import AdapterAware
from simulator.serving.routers.base import Router, Target
from simulator.serving.routers.by_length import ByLength
from simulator.serving.routers.by_priority import ByPriority
from simulator.serving.routers.by_quality import ByQuality
from simulator.serving.routers.dynamo_kv import DynamoKv
from simulator.serving.routers.freeness import Freeness
from simulator.serving.routers.least_loaded import LeastLoaded
from simulator.serving.routers.llm_d import StickyUntilSaturated
from simulator.serving.routers.power_of_two import PowerOfTwo
from simulator.serving.routers.prefix_aware import PrefixAware
from simulator.serving.routers.round_robin import RoundRobin
from simulator.serving.routers.scored import Scored
from simulator.serving.routers.soonest import Soonest

KINDS: tuple[type[Router], ...] = (
    RoundRobin,
    LeastLoaded,
    PowerOfTwo,
    PrefixAware,
    AdapterAware,
    ByPriority,
    ByLength,
    ByQuality,
    Freeness,
    Scored,
    Soonest,
    StickyUntilSaturated,
    DynamoKv,
)
routers: Mapping[str, type[Router]] = MappingProxyType({kind.name: kind for kind in KINDS})


def make_router(name: str, options: Mapping[str, Any], where: str = "") -> Router:
    """The router of that name with its parameters; raises as `make_policy`."""
    return make_policy("router", routers, name, options, where)


__all__ = ["Router", "Target", "make_router", "routers"]
