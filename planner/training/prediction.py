"""Predictions of plans of one setting: step, memory and figures of merit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from core.records import record
from planner.training.confidence import Confidence, confidence
from planner.training.metrics import Metrics
from planner.training.search import SearchResult
from simulator.plan import Plan, Plans
from simulator.schedules import get_schedule
from simulator.setting import Setting
from simulator.training import Step, predict
from simulator.training.memory import StageMemory, memory
from simulator.uncertainty import has_parts

if TYPE_CHECKING:
    from simulator.engine import Timeline


@record()
class Prediction:
    """Plans of one setting with their predicted step, memory and figures of merit, one row a plan."""

    setting: Setting
    plans: Plans
    step: Step
    memory: StageMemory
    metrics: Metrics

    @classmethod
    def of(cls, setting: Setting, plan: Plan | Plans) -> Prediction:
        """Predict one plan, or several, analytically."""
        plans = plan if isinstance(plan, Plans) else Plans.of(plan)
        step = predict(setting, plans)
        usage = memory(setting, plans, step.stages, step.parameters)
        return cls(setting, plans, step, usage, Metrics.of(setting, plans, step))

    @classmethod
    def of_timeline(cls, setting: Setting, plan: Plan, timeline: Timeline) -> Prediction:
        """The prediction from an engine run; its breakdown is that of the busiest rank."""
        from planner.training.finalists import engine_step

        plans, step = Plans.of(plan), engine_step(setting, plan, timeline)
        usage = memory(setting, plans, step.stages, step.parameters)
        return cls(setting, plans, step, usage, Metrics.of(setting, plans, step))

    @classmethod
    def of_search(cls, result: SearchResult) -> Prediction:
        """The plans that a search returned."""
        return cls(result.setting, result.plans, result.step, result.memory, result.metrics)

    @cached_property
    def confidence(self) -> Confidence | None:
        """What is known about the plans; None of steps of the engine, and without plans."""
        if not len(self.plans) or not has_parts(self.step):
            return None
        return confidence(self.setting, self.plans, self.step)


@record()
class Simulation:
    """One plan, timed analytically, by the event engine, or by both.

    ``prediction`` is the analytic one where the schedule has a closed form, else the engine's.
    """

    prediction: Prediction
    analytic_step_s: float | None
    timeline: Timeline | None


def simulate_plan(
    setting: Setting,
    plan: Plan,
    engine: bool = False,
    detail: int = 0,
    progress: Callable[[float], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> Simulation:
    """Time one plan: by the closed form where there is one, on the event engine if requested or needed.

    The engine is needed for schedules without a closed form, and for settings with stragglers.

    Args:
        setting: inputs of the plan.
        plan: plan to time.
        engine: run the step on the event engine even where the schedule has a closed form.
        detail: kernels and collectives up to which the engine runs each as a task of its own; above, and by
            default, it runs each pass as one.
        progress: called with the finished share of the engine's run.
        notice: called with a line that says how long the engine's run takes, where that is long.

    Raises:
        InputError: the schedule cannot run with the plan's stages and micro batches, or the engine would
            take too long.
    """
    closed_form = get_schedule(plan.schedule).has_closed_form and not setting.stragglers
    if closed_form and not engine:
        prediction = Prediction.of(setting, plan)
        return Simulation(prediction, float(prediction.step.time[0]), None)

    from simulator.training.step_graph import run
    from simulator.training.step_graph.build import step_program
    from simulator.training.step_graph.length import check_length, segments

    program = step_program(setting, plan)
    if segments(program) <= detail:
        program = replace(program, detail=True)
    check_length(program, notice)
    timeline = run(program, progress)
    if not closed_form:
        return Simulation(Prediction.of_timeline(setting, plan, timeline), None, timeline)
    prediction = Prediction.of(setting, plan)
    return Simulation(prediction, float(prediction.step.time[0]), timeline)
