"""Catalogues as tables for ``show``: one module for each kind of entry, listed in ``KINDS``."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from core.errors import UnknownNameError
from meshwright.reports.catalogues import (
    checkpoints,
    clusters,
    devices,
    diffusion,
    drafts,
    engines,
    faults,
    frameworks,
    links,
    models,
    offload,
    policies,
    recipes,
    scenarios,
    schedules,
)
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import table

KINDS: dict[str, Kind[Any]] = {
    "devices": devices.KIND,
    "clusters": clusters.KIND,
    "links": links.KIND,
    "models": models.KIND,
    "towers": diffusion.TOWERS,
    "diffusion-models": diffusion.MODELS,
    "diffusion-libraries": diffusion.LIBRARIES,
    "frameworks": frameworks.KIND,
    "recipes": recipes.KIND,
    "offload": offload.KIND,
    "schedules": schedules.KIND,
    "engines": engines.KIND,
    "schedulers": policies.SCHEDULERS,
    "routers": policies.ROUTERS,
    "migrations": policies.MIGRATIONS,
    "kv": policies.KV,
    "states": policies.STATES,
    "scalers": policies.SCALERS,
    "starts": policies.STARTS,
    "drafts": drafts.KIND,
    "overlaps": policies.OVERLAPS,
    "adapters": policies.ADAPTERS,
    "power-policies": policies.POWER_POLICIES,
    "traces": policies.TRACES,
    "faults": faults.KIND,
    "checkpoints": checkpoints.KIND,
    "scenarios": scenarios.KIND,
}


def list_all(kind: str) -> tuple[dict[str, Any], list[Table]]:
    """All entries of a kind in brief, for JSON and for people.

    Raises:
        UnknownNameError: no such kind.
    """
    catalogue = _kind(kind)
    entries = [catalogue.get(name) for name in catalogue.names()]
    report = {kind: [catalogue.brief(entry) for entry in entries]}
    rows = [catalogue.row(entry) for entry in entries]
    return report, [table(catalogue.columns, rows, left=catalogue.text_columns)]


def describe(kind: str, name: str) -> tuple[dict[str, Any], list[Table]]:
    """Everything about one entry, for JSON and for people.

    Raises:
        UnknownNameError: no such kind or entry.
    """
    catalogue = _kind(kind)
    entry = catalogue.get(name)
    return {kind.removesuffix("s"): {**catalogue.brief(entry), **catalogue.more(entry)}}, catalogue.tables(
        entry
    )


def _kind(kind: str) -> Kind[Any]:
    if kind not in KINDS:
        raise UnknownNameError("kind", kind, KINDS)
    return KINDS[kind]
