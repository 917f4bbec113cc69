"""The best plans of a search, timed again by the event engine, and where the two disagree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from core.errors import InputError
from core.loading import build
from hwmodels.cluster import Cluster
from planner.execution import Execution
from planner.store import digest_of
from planner.training.prediction import Prediction, simulate_plan
from simulator.frameworks import Framework
from simulator.models import Model
from simulator.plan import Plan
from simulator.setting import Setting
from simulator.workload import Training

DETAIL = 100_000
"""Kernels and collectives up to which the engine distinguishes the parts of a step."""

Packed = tuple[dict[str, Any], dict[str, Any], dict[str, Any], dict[str, Any]]
"""A setting as plain data: model, cluster, training, framework."""


INTERRUPTED = "interrupted before it ended"
"""Problem of a plan that was not timed because the run was interrupted."""


@dataclass(frozen=True)
class Refined:
    """One plan on the event engine.

    Attributes:
        step_s: seconds of a step.
        parts_s: the step of the busiest rank by part, under the names of the analytic breakdown.
        peak_bytes: peak of the fullest rank.
        problem: reason why the engine cannot run the plan; the other fields are then empty.
    """

    step_s: float
    parts_s: dict[str, float]
    peak_bytes: float
    problem: str = ""


def refine(setting: Setting, plans: Sequence[Plan], execution: Execution) -> Iterator[tuple[int, Refined]]:
    """Time plans with the event engine.

    Args:
        setting: inputs that all plans share.
        plans: plans to time.
        execution: executor and store of the engine runs.

    Yields:
        The index of a plan and its run, in the order in which runs end.
    """
    packed = _pack(setting)
    calls = [(packed, plan.model_dump()) for plan in plans]
    for number, run, _ in execution.run(_run_packed, calls, _question):
        yield number, Refined(**run)


def run_plan(setting: Setting, plan: Plan) -> Refined:
    """Time one plan with the event engine; failure to run is a result too."""
    try:
        timeline = simulate_plan(setting, plan, engine=True, detail=DETAIL).timeline
    except InputError as error:
        return Refined(0.0, {}, 0.0, error.problem)
    if timeline is None:
        return Refined(0.0, {}, 0.0, "the engine did not run")
    step = Prediction.of_timeline(setting, plan, timeline).step
    parts = {name: float(seconds[0]) for name, seconds in step.seconds.items()}
    peak = max(timeline.peak_memory(rank) for rank in range(timeline.ranks))
    return Refined(float(step.time[0]), parts, peak)


def _pack(setting: Setting) -> Packed:
    """A setting for another process, without cached kernel models."""
    return (
        setting.model.model_dump(),
        setting.cluster.model_dump(),
        setting.training.model_dump(),
        setting.framework.model_dump(),
    )


def _question(packed: Packed, plan: dict[str, Any]) -> dict[str, Any]:
    """Inputs of a plan's run."""
    return {"ask": "refine", "setting": digest_of(packed), "plan": plan}


def _run_packed(packed: Packed, plan: dict[str, Any]) -> dict[str, Any]:
    """Run of a plan in another process, as plain data."""
    model, cluster, training, framework = packed
    setting = Setting(
        build(Model, model, "model"),
        build(Cluster, cluster, "cluster"),
        build(Training, training, "workload"),
        build(Framework, framework, "framework"),
    )
    return asdict(run_plan(setting, build(Plan, plan, "plan")))
