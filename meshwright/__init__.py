"""Meshwright: predict, search and explain training and serving plans on GPU clusters.

After ``import meshwright as mw``: ``mw.plan``, ``mw.simulate``, ``mw.whatif``, ``mw.catalogue``; docs/api.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.api import (
        Comparison,
        Execution,
        InfeasibleError,
        InputError,
        MeshwrightError,
        MixedSimulation,
        PlanReport,
        PlanSearch,
        StepSimulation,
        catalogue,
        plan,
        simulate,
        simulate_mixed,
        size,
        whatif,
    )
    from meshwright.serving_api import (
        DayPlan,
        DayRun,
        DeploymentSearch,
        Fronts,
        Mix,
        day,
        deploy,
        mix,
        serving_front,
    )
    from planner.sizing import Sizing

__version__ = "0.3.0"

__all__ = [
    "Comparison",
    "DayPlan",
    "DayRun",
    "DeploymentSearch",
    "Execution",
    "Fronts",
    "InfeasibleError",
    "InputError",
    "MeshwrightError",
    "Mix",
    "MixedSimulation",
    "PlanReport",
    "PlanSearch",
    "Sizing",
    "StepSimulation",
    "catalogue",
    "day",
    "deploy",
    "mix",
    "plan",
    "serving_front",
    "simulate",
    "simulate_mixed",
    "size",
    "whatif",
]


_SERVING = {"DayPlan", "DayRun", "DeploymentSearch", "Fronts", "Mix", "day", "deploy", "mix", "serving_front"}


def __getattr__(name: str) -> Any:
    """Import the API on first use, so that the command line starts without it."""
    if name in __all__:
        from importlib import import_module

        if name == "Sizing":
            return import_module("planner.sizing").Sizing
        return getattr(
            import_module("meshwright.serving_api" if name in _SERVING else "meshwright.api"), name
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
