"""Meshwright: predict, search and explain training and serving plans on GPU clusters.

After ``import meshwright as mw``: ``mw.plan``, ``mw.simulate``, ``mw.whatif``, ``mw.sweep``, ``mw.export``,
``mw.catalogue``; docs/api.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.api.launch import Export, Imported, export, import_
    from meshwright.api.learning import Learning, ServerLearning, learn
    from meshwright.api.runs import RunSimulation, plan_run, run
    from meshwright.api.serving import (
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
    from meshwright.api.training import (
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
        size,
        whatif,
    )
    from meshwright.jobs.rl import PostTraining
    from meshwright.observations.live_server import Observation, observe
    from meshwright.sweeps.api import SweepResult, sweep
    from planner.run_search import RunRanking
    from planner.training.sizing import Sizing

__version__ = "0.29.0"

__all__ = [
    "Comparison",
    "DayPlan",
    "DayRun",
    "DeploymentSearch",
    "Execution",
    "Export",
    "Fronts",
    "Imported",
    "InfeasibleError",
    "InputError",
    "Learning",
    "MeshwrightError",
    "Mix",
    "MixedSimulation",
    "Observation",
    "PlanReport",
    "PlanSearch",
    "PostTraining",
    "RunRanking",
    "RunSimulation",
    "ServerLearning",
    "Sizing",
    "StepSimulation",
    "SweepResult",
    "catalogue",
    "day",
    "deploy",
    "export",
    "import_",
    "learn",
    "mix",
    "observe",
    "plan",
    "plan_run",
    "run",
    "serving_front",
    "simulate",
    "size",
    "sweep",
    "whatif",
]


_ELSEWHERE = {
    "meshwright.api.launch": ("Export", "Imported", "export", "import_"),
    "meshwright.api.learning": ("Learning", "ServerLearning", "learn"),
    "meshwright.api.runs": ("RunSimulation", "plan_run", "run"),
    "meshwright.api.serving": (
        "DayPlan",
        "DayRun",
        "DeploymentSearch",
        "Fronts",
        "Mix",
        "day",
        "deploy",
        "mix",
        "serving_front",
    ),
    "meshwright.jobs.rl": ("PostTraining",),
    "meshwright.observations.live_server": ("Observation", "observe"),
    "meshwright.sweeps.api": ("SweepResult", "sweep"),
    "planner.run_search": ("RunRanking",),
    "planner.training.sizing": ("Sizing",),
}
"""Modules of names that ``meshwright.api.training`` does not hold."""


def __getattr__(name: str) -> Any:
    """Import the API on first use, so that the command line starts without it."""
    if name in __all__:
        from importlib import import_module

        homes = (module for module, names in _ELSEWHERE.items() if name in names)
        return getattr(import_module(next(homes, "meshwright.api.training")), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
