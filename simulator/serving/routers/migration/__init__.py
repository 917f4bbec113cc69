"""Policies that move sequences between replicas, by name: one file each."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from simulator.serving.question.policies import make_policy
from simulator.serving.routers.migration.base import Loan, Migration, Move, MovingHost
from simulator.serving.routers.migration.drain_only import DrainOnly
from simulator.serving.routers.migration.lend import Lend
from simulator.serving.routers.migration.llumnix import Llumnix

migrations: Mapping[str, type[Migration]] = MappingProxyType(
    {kind.name: kind for kind in (Llumnix, DrainOnly, Lend)}
)


def make_migration(name: str, options: Mapping[str, Any], where: str = "") -> Migration:
    """The migration policy of that name with its parameters; raises as `make_policy`."""
    return make_policy("migration", migrations, name, options, where)


__all__ = ["Loan", "Migration", "Move", "MovingHost", "make_migration", "migrations"]
