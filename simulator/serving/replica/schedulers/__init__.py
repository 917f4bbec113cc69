"""Schedulers by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from simulator.serving.question.policies import make_policy
from simulator.serving.replica.schedulers.base import Scheduler
from simulator.serving.replica.schedulers.changing_priority import ChangingPriority
from simulator.serving.replica.schedulers.chunked import Chunked
from simulator.serving.replica.schedulers.continuous import Continuous
from simulator.serving.replica.schedulers.exact_budget import ExactBudget
from simulator.serving.replica.schedulers.fair import Fair
from simulator.serving.replica.schedulers.gang import Gang
from simulator.serving.replica.schedulers.one_adapter import OneAdapter
from simulator.serving.replica.schedulers.prefill_first import PrefillFirst
from simulator.serving.replica.schedulers.prefix_grouped import PrefixGrouped
from simulator.serving.replica.schedulers.priority import Priority
from simulator.serving.replica.schedulers.spaced_prefill import SpacedPrefill
from simulator.serving.replica.schedulers.static import Static
from simulator.serving.replica.schedulers.urgency import Urgency

schedulers: Mapping[str, type[Scheduler]] = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Static,
            Continuous,
            PrefillFirst,
            SpacedPrefill,
            Chunked,
            ExactBudget,
            Priority,
            ChangingPriority,
            PrefixGrouped,
            OneAdapter,
            Urgency,
            Gang,
            Fair,
        )
    }
)


def make_scheduler(name: str, options: Mapping[str, Any], where: str = "") -> Scheduler:
    """The scheduler of that name with its parameters; raises as `make_policy`."""
    return make_policy("scheduler", schedulers, name, options, where)


__all__ = ["Scheduler", "make_scheduler", "schedulers"]
