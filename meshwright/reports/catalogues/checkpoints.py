"""Checkpoint mechanisms: what blocks training, where saves go, their keys."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from core.errors import named
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import table
from simulator.checkpoints import MECHANISMS, Mechanism


def _name(mechanism: type[Mechanism]) -> str:
    return next(name for name, entry in MECHANISMS.items() if entry is mechanism)


def _keys(mechanism: type[Mechanism]) -> dict[str, str]:
    fields = mechanism.model_fields.items()
    return {name: field.description or "" for name, field in fields if name != "mechanism"}


def _brief(mechanism: type[Mechanism]) -> dict[str, Any]:
    about = (mechanism.__doc__ or "").strip().splitlines()[0]
    return {
        "name": _name(mechanism),
        "title": mechanism.HELP,
        "places": list(mechanism.PLACES),
        "source": about,
    }


def _places(mechanism: type[Mechanism]) -> str:
    return ", ".join(mechanism.PLACES)


def _systems(mechanism: type[Mechanism]) -> str:
    return _brief(mechanism)["source"]


def _parts(mechanism: type[Mechanism]) -> list[Table]:
    return [table(["key", "meaning"], list(map(list, _keys(mechanism).items())), "Keys", left=2)]


KIND = Kind(
    names=lambda: list(MECHANISMS),
    get=lambda name: named("checkpoint mechanism", name, MECHANISMS),
    brief=_brief,
    more=lambda mechanism: {"keys": _keys(mechanism)},
    cells={
        "mechanism": _name,
        "what it does": lambda mechanism: mechanism.HELP,
        "default places": _places,
        "systems": _systems,
    },
    about=lambda mechanism: {
        "what": mechanism.HELP,
        "default places": _places(mechanism),
        "systems": _systems(mechanism),
    },
    parts=_parts,
    text_columns=4,
)
