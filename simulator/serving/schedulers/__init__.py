"""Schedulers by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from simulator.serving.policies import make_policy
from simulator.serving.schedulers.base import Scheduler
from simulator.serving.schedulers.chunked import Chunked
from simulator.serving.schedulers.continuous import Continuous
from simulator.serving.schedulers.exact_budget import ExactBudget
from simulator.serving.schedulers.prefill_first import PrefillFirst
from simulator.serving.schedulers.priority import Priority
from simulator.serving.schedulers.static import Static

schedulers: Mapping[str, type[Scheduler]] = MappingProxyType(
    {kind.name: kind for kind in (Static, Continuous, PrefillFirst, Chunked, ExactBudget, Priority)}
)


make_scheduler = partial(make_policy, "scheduler", schedulers)
"""The scheduler of a name with its parameters (`make_policy`)."""

__all__ = ["Scheduler", "make_scheduler", "schedulers"]
