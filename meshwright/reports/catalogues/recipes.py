"""Recipes: what a release sets on top of its framework."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts
from simulator.recipes import Recipe, recipes


def _brief(recipe: Recipe) -> dict[str, Any]:
    # `sets` held keys of the framework until 0.6; they are plan fields now.
    return {**recipe.model_dump(mode="json"), "sets": {}}


def _words(settings: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()
    )


def _row(recipe: Recipe) -> list[str]:
    return [recipe.name, recipe.framework, _words(recipe.plan), recipe.title]


def _tables(recipe: Recipe) -> list[Table]:
    rows = {
        "what": recipe.title,
        "framework": recipe.framework,
        "models": ", ".join(recipe.models),
        "devices": ", ".join(recipe.devices),
        "plan fields": _words(recipe.plan),
        "source": recipe.source,
    }
    return [facts({name: value for name, value in rows.items() if value}, recipe.name)]


KIND = Kind(
    names=recipes.names,
    get=recipes.get,
    brief=_brief,
    columns=("recipe", "framework", "plan fields", "what"),
    row=_row,
    tables=_tables,
    text_columns=5,
)
