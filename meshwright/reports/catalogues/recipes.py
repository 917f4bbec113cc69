"""Recipes: what a release sets on top of its framework."""

from __future__ import annotations

from typing import Any

from meshwright.reports.catalogues.kind import Kind
from simulator.recipes import Recipe, recipes


def _brief(recipe: Recipe) -> dict[str, Any]:
    return recipe.model_dump(mode="json")


def _words(settings: dict[str, Any]) -> str:
    return ", ".join(
        f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items()
    )


def _about(recipe: Recipe) -> dict[str, str]:
    return {
        "what": recipe.title,
        "framework": recipe.framework,
        "models": ", ".join(recipe.models),
        "devices": ", ".join(recipe.devices),
        "plan fields": _words(recipe.plan),
        "source": recipe.source,
    }


KIND = Kind(
    names=recipes.names,
    get=recipes.get,
    brief=_brief,
    cells={
        "recipe": lambda recipe: recipe.name,
        "framework": lambda recipe: recipe.framework,
        "plan fields": lambda recipe: _words(recipe.plan),
        "what": lambda recipe: recipe.title,
    },
    about=_about,
    text_columns=5,
)
