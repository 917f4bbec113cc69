"""Frameworks: what they do that a plan does not say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from core.loading import Strict
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts, table
from simulator.frameworks import Framework, frameworks
from simulator.levers import Choices


def _brief(framework: Framework) -> dict[str, Any]:
    return {
        "name": framework.name,
        "title": framework.title,
        "attention": Choices.of(framework.defaults).attention,
        "defaults": dict(framework.defaults),
    }


def _more(framework: Framework) -> dict[str, Any]:
    origins = [{"key": key, **origin.model_dump(mode="json")} for key, origin in framework.origins.items()]
    return {**framework.model_dump(mode="json"), "origins": origins}


def _parts(framework: Framework) -> list[Table]:
    rows = [
        [name, _words(value), meaning]
        for name, value, meaning in _keys(framework)
        if name not in ("name", "title", "defaults", "source")
    ]
    origins = [
        [key, _words(origin.value), origin.kind, origin.source] for key, origin in framework.origins.items()
    ]
    return [
        table(("number", "value", "kind", "source"), origins, "Numbers, the assumed ones first", left=4),
        table(("key", "value", "meaning"), rows, "All keys", left=3),
        facts(
            {name: _words(value) for name, value in framework.defaults.items()}, "Plan fields that it sets"
        ),
        facts(dict(framework.source), "Sources of what is no number"),
    ]


def _keys(definition: Strict, path: str = "") -> Iterator[tuple[str, Any, str]]:
    """Key path, value and meaning of each key, those of parts among them."""
    for name, field in type(definition).model_fields.items():
        value = getattr(definition, name)
        if isinstance(value, Strict):
            yield from _keys(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value, field.description or ""


def _words(value: object) -> str:
    """A value as a file says it."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(inner)}" for name, inner in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


KIND = Kind(
    names=frameworks.names,
    get=frameworks.get,
    brief=_brief,
    more=_more,
    cells={
        "framework": lambda framework: framework.name,
        "attention": lambda framework: Choices.of(framework.defaults).attention,
        "plan defaults": lambda framework: _words(framework.defaults),
        "what": lambda framework: framework.title,
    },
    about=lambda framework: {"what": framework.title},
    parts=_parts,
    text_columns=4,
)
