"""Kinds of speculative decoding."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from core.errors import named
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import table
from simulator.serving.question.speculation import DraftingDefaults, drafting_defaults

FIGURES = ("tokens", "acceptance", "layers", "host_s", "verified")


def _get(name: str) -> tuple[str, DraftingDefaults]:
    return name, named("kind of speculation", name, drafting_defaults())


def _figures(defaults: DraftingDefaults) -> dict[str, Any]:
    return {name: figure for name in FIGURES if (figure := getattr(defaults, name)) is not None}


def _brief(entry: tuple[str, DraftingDefaults]) -> dict[str, Any]:
    name, defaults = entry
    values = {key: figure.value for key, figure in _figures(defaults).items()}
    return {"name": name, "passes": defaults.passes, **values}


def _more(entry: tuple[str, DraftingDefaults]) -> dict[str, Any]:
    return {"sources": {key: figure.source for key, figure in _figures(entry[1]).items()}}


def _parts(entry: tuple[str, DraftingDefaults]) -> list[Table]:
    rows = [
        [key, f"{figure.value:g}", figure.kind, figure.source] for key, figure in _figures(entry[1]).items()
    ]
    return [table(("parameter", "default", "kind", "source"), rows, left=4)]


KIND = Kind(
    names=lambda: sorted(drafting_defaults()),
    get=_get,
    brief=_brief,
    more=_more,
    cells={
        "draft": lambda entry: entry[0],
        "passes of the draft": lambda entry: entry[1].passes,
        "tokens": lambda entry: f"{entry[1].tokens.value}",
        "acceptance": lambda entry: f"{entry[1].acceptance.value:g}",
    },
    about=lambda entry: {"passes": entry[1].passes},
    parts=_parts,
    text_columns=2,
)
