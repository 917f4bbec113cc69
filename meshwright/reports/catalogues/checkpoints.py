"""Checkpoint mechanisms: what blocks training, where saves go, their keys."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from core.errors import UnknownNameError
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts, table
from simulator.checkpoints import MECHANISMS, Mechanism


def _get(name: str) -> type[Mechanism]:
    if name not in MECHANISMS:
        raise UnknownNameError("checkpoint mechanism", name, MECHANISMS)
    return MECHANISMS[name]


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


def _row(mechanism: type[Mechanism]) -> list[str]:
    brief = _brief(mechanism)
    return [brief["name"], brief["title"], ", ".join(brief["places"]), brief["source"]]


def _tables(mechanism: type[Mechanism]) -> list[Table]:
    brief = _brief(mechanism)
    values = {
        "what": brief["title"],
        "default places": ", ".join(brief["places"]),
        "systems": brief["source"],
    }
    return [
        facts(values, brief["name"]),
        table(["key", "meaning"], list(map(list, _keys(mechanism).items())), "Keys", left=2),
    ]


KIND = Kind(
    names=lambda: list(MECHANISMS),
    get=_get,
    brief=_brief,
    more=lambda mechanism: {"keys": _keys(mechanism)},
    columns=("mechanism", "what it does", "default places", "systems"),
    row=_row,
    tables=_tables,
    text_columns=4,
)
