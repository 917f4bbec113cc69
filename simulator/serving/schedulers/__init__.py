"""Schedulers by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hwmodels.errors import UnknownNameError
from hwmodels.loading import build
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


def make_scheduler(name: str, options: Mapping[str, Any], where: str = "") -> Scheduler:
    """The scheduler of that name with its parameters.

    Raises:
        UnknownNameError: no such scheduler (the nearest name is offered).
        InputError: an unknown parameter, or a wrong value.
    """
    if name not in schedulers:
        raise UnknownNameError("scheduler", name, schedulers, where)
    return build(schedulers[name], options, f"{where}_options" if where else f"scheduler {name}")


__all__ = ["Scheduler", "make_scheduler", "schedulers"]
