"""Catalogues as tables for ``show``: one module for each kind of entry, listed in ``KINDS``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from core.errors import UnknownNameError, named
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
    post_training,
    recipes,
    recommendation,
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
    "recommendation-models": recommendation.MODELS,
    "tables-libraries": recommendation.LIBRARIES,
    "samplers": post_training.SAMPLERS,
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
    "algorithms": post_training.ALGORITHMS,
    "rl-schedules": post_training.SCHEDULES,
    "rl-frameworks": post_training.FRAMEWORKS,
    "weight-transfers": post_training.TRANSFERS,
    "scenarios": scenarios.KIND,
}


SHORTEST = 3
"""Letters of a text that names are searched for."""


def list_all(kind: str, part: str = "") -> tuple[dict[str, Any], list[Table | str]]:
    """All entries of a kind whose names hold a text, in brief, for JSON and for people.

    Raises:
        UnknownNameError: no such kind.
    """
    catalogue = _kind(kind)
    names = _matching(catalogue, part)
    entries = {name: catalogue.get(name) for name in names}
    report = {kind: [catalogue.brief(entry) for entry in entries.values()]}
    hidden = catalogue.folder if not part else ""
    rows = [
        catalogue.row(entry) for name, entry in entries.items() if not (hidden and name.startswith(hidden))
    ]
    words = [f"{len(names) - len(rows)} more in {hidden}: meshwright show {kind} {hidden}"] if hidden else []
    return report, [table(list(catalogue.cells), rows, left=catalogue.text_columns), *words]


def describe(kind: str, name: str) -> tuple[dict[str, Any], Sequence[Table | str]]:
    """Everything about one entry, or all whose names hold the text, for JSON and for people.

    Raises:
        UnknownNameError: no such kind or entry.
    """
    catalogue = _kind(kind)
    try:
        entry = catalogue.get(name)
    except UnknownNameError:
        if len(name) < SHORTEST or not _matching(catalogue, name):
            raise
        return list_all(kind, name)
    return {kind.removesuffix("s"): {**catalogue.brief(entry), **catalogue.more(entry)}}, catalogue.tables(
        entry
    )


def _matching(catalogue: Kind[Any], part: str) -> list[str]:
    """Names that hold a text; where none does, those of the group that begins with it."""
    names = [name for name in catalogue.names() if _has(name, part)]
    if names or catalogue.group is None:
        return names
    return [
        name for name in catalogue.names() if catalogue.group(catalogue.get(name)).startswith(part.lower())
    ]


def _has(name: str, part: str) -> bool:
    """Whether a word of a name begins so."""
    return re.search(rf"(^|[-_./ ]){re.escape(part.lower())}", name.lower()) is not None


SYNONYMS = {"gpus": "devices", "gpu": "devices", "accelerators": "devices", "nodes": "clusters"}
"""Other words for kinds of entries."""


def _kind(kind: str) -> Kind[Any]:
    kind = SYNONYMS.get(kind, kind)
    return named("kind", f"{kind}s" if f"{kind}s" in KINDS else kind, KINDS)
