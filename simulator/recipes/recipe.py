"""Recipes: named partial plans, with their source.

A framework states what its code does for every model; a recipe states what the launch script of a release
chooses for one model and GPU: dispatcher, CUDA graphs, kernels, overlaps, recomputed modules, degrees.
"""

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from core.errors import InputError
from core.loading import Catalogue, Strict, build
from simulator.frameworks import Framework, frameworks
from simulator.plan import Plan


class Recipe(Strict):
    """A partial plan that a release ships for a model and a GPU."""

    name: str
    title: str = Field(description="release, model and GPU")
    framework: str = Field(description="catalogue name of the framework that it runs on")
    models: list[str] = Field([], description="models that the release ships it for; empty: any")
    devices: list[str] = Field([], description="devices that the release ships it for; empty: any")
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

    @field_validator("plan")
    @classmethod
    def _plan_fields(cls, plan: dict[str, Any]) -> dict[str, Any]:
        try:
            # Degrees that make any single field of a plan consistent.
            build(Plan, {"tensor": 8, "data": 8, **plan}, "")
        except InputError as error:
            raise ValueError(error.problem) from None
        return plan

    def misfit(self, model: str, device: str) -> str:
        """What the recipe is not shipped for, in words; empty where it fits.

        Args:
            model, device: names of the question's.
        """
        parts = ((self.models, model), (self.devices, device))
        wrong = [
            f"{name} (it is for {', '.join(frameworks_of)})"
            for frameworks_of, name in parts
            if frameworks_of and name not in frameworks_of
        ]
        return " and ".join(wrong)

    def applied(self, framework: Framework, where: str = "") -> Framework:
        """Return the framework with the recipe's partial plan as its defaults.

        Raises:
            InputError: it is another framework than the recipe's.
        """
        if framework.name != self.framework:
            other = f"not of {framework.name!r}"
            raise InputError(f"{self.name!r} is a recipe of the framework {self.framework!r}, {other}", where)
        return framework.model_copy(update={"defaults": {**framework.defaults, **self.plan}})


recipes = Catalogue("recipe", Path(__file__).parent, Recipe)
