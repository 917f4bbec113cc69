"""What one release's recipe for one model and GPU sets, on top of its framework.

A framework states what its code does for every model; a recipe states what a launch script chooses:
dispatcher, CUDA graphs, kernels of attention, overlaps, the tensor degree of experts, recomputation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from hwmodels.errors import InputError
from hwmodels.loading import Catalogue, Strict, build
from simulator.frameworks import Framework, frameworks
from simulator.plan import Plan

OF_THE_FRAMEWORK = frozenset({"name", "title", "defaults", "source"})
"""Keys of a framework that no recipe sets."""


class Recipe(Strict):
    """Settings of a release, by name of a framework's keys and of plan fields."""

    name: str
    title: str = Field(description="release, model and GPU")
    framework: str = Field(description="catalogue name of the framework that it runs on")
    sets: dict[str, Any] = Field(default_factory=dict, description="keys of the framework")
    plan: dict[str, Any] = Field(
        default_factory=dict, description="plan fields, where a plan leaves them out"
    )
    source: str = Field(description="where the release states it")

    @field_validator("framework")
    @classmethod
    def _known(cls, name: str) -> str:
        try:
            return frameworks.get(name).name
        except InputError as error:
            raise ValueError(error.problem) from None

    @field_validator("sets")
    @classmethod
    def _framework_keys(cls, sets: dict[str, Any]) -> dict[str, Any]:
        if taken := OF_THE_FRAMEWORK & sets.keys():
            raise ValueError(f"{sorted(taken)[0]!r} is the framework's own; plan fields go under 'plan'")
        return sets

    @field_validator("plan")
    @classmethod
    def _plan_fields(cls, plan: dict[str, Any]) -> dict[str, Any]:
        try:
            # Degrees that make any single field of a plan consistent.
            build(Plan, {"tensor": 8, "data": 8, **plan}, "")
        except InputError as error:
            raise ValueError(error.problem) from None
        return plan

    def applied(self, framework: Framework, where: str = "") -> Framework:
        """Return the framework as the recipe sets it up.

        Raises:
            InputError: it is another framework than the recipe's, or a value is wrong.
        """
        if framework.name != self.framework:
            other = f"not of {framework.name!r}"
            raise InputError(f"{self.name!r} is a recipe of the framework {self.framework!r}, {other}", where)
        defaults = {**framework.defaults, **self.plan}
        built = build(
            Framework, {**framework.model_dump(), **self.sets}, f"{where}: sets" if where else "sets"
        )
        # Numbers that the recipe leaves alone keep their origins.
        changed = {key: getattr(built, key) for key in self.sets}
        return framework.model_copy(update={**changed, "defaults": defaults})


recipes = Catalogue("recipe", Path(__file__).parent, Recipe)
