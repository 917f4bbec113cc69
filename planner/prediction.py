"""Predictions of plans of one setting: step, memory and figures of merit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hwmodels.errors import InputError
from hwmodels.records import record
from planner.metrics import Metrics
from planner.search import SearchResult
from planner.standing import Standing, standing
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.plan import Plan, Plans
from simulator.schedules import get_schedule
from simulator.setting import Setting
from simulator.training import Step, predict
from simulator.training.memory import StageMemory, memory
from simulator.uncertainty import has_parts

if TYPE_CHECKING:
    from simulator.engine import Timeline
    from simulator.training.step_graph import StepProgram


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
        from simulator.training.step_graph.account import BUBBLE, account, busiest, communicated

        plans = Plans.of(plan)
        stages = Stages.of(setting, plans)
        counts = parameters(setting, plans, stages)
        rank = busiest(timeline)
        parts = account(timeline, rank)
        # Without synchronisation, a rank's next step begins before the last rank ends this one.
        parts[BUBBLE] -= timeline.seconds - timeline.period
        seconds = {name: np.array([part]) for name, part in parts.items()}
        moved = {name: np.array([total]) for name, total in communicated(timeline, rank).items()}
        step = Step(np.array([timeline.period]), seconds, moved, stages, counts)
        usage = memory(setting, plans, stages, counts)
        return cls(setting, plans, step, usage, Metrics.of(setting, plans, step))

    @classmethod
    def of_search(cls, result: SearchResult) -> Prediction:
        """The plans that a search returned."""
        return cls(result.setting, result.plans, result.step, result.memory, result.metrics)

    @cached_property
    def standing(self) -> Standing | None:
        """What is known about the plans; None of steps of the engine, and without plans."""
        if not len(self.plans) or not has_parts(self.step):
            return None
        return standing(self.setting, self.plans, self.step)


@record()
class Simulation:
    """One plan, timed analytically, by the event engine, or by both.

    ``prediction`` is the analytic one where the schedule has a closed form, else the engine's.
    """

    prediction: Prediction
    analytic_step_s: float | None
    timeline: Timeline | None


def segments(program: StepProgram) -> int:
    """Kernels and collectives in all passes of a step."""
    passes = (part for work in program.work for part in (work.forward, work.backward, work.weight))
    return program.micro_batches * sum(map(len, passes))


MOST_MICRO_BATCHES = 2**15
"""Maximum micro batches of a step on the engine: ten times those of the longest published pipeline."""
LONGEST_S = 20.0
"""Longest engine run allowed, s; at 0.4 kB a task, less than 1 GB."""
TASK_S, SEGMENT_S = 8e-6, 1.2e-6
"""CPU seconds per task of the engine (`benchmarks.engine`: 4 to 6.5 us), and per kernel or collective that is
read from a pass."""
NOTICED_S = 2.0
"""Minimum length of an engine run that is announced, s."""


def engine_tasks(program: StepProgram) -> int:
    """Estimate of the engine's tasks in a step.

    An uninterrupted pass is one task; a pass that gathers parameters or completes gradients has one for every
    kernel, and so have all passes whose own communication may meet such collectives on a link.
    """
    from simulator.training.step_graph.step import meets

    micro_batches, sends = program.micro_batches, 1 if program.stages > 1 else 0
    gathering = micro_batches if program.gather == "pass" else 1
    reducing = micro_batches if program.reduce == "pass" else 1
    tasks = 0
    for work in program.work:
        last = work.weight or work.backward
        again = work.backward_gathers if program.gather == "pass" else ()
        split = {id(work.forward): gathering if work.forward_gathers else 0}
        split[id(work.backward)] = gathering if again else 0
        split[id(last)] = max(split.get(id(last), 0), reducing if work.reductions else 0)
        tasks += gathering * (len(work.forward_gathers) + len(again)) + reducing * len(work.reductions)
        everywhere = program.detail or ("pass" in (program.gather, program.reduce) and meets([work]))
        for segments in filter(None, (work.forward, work.backward, work.weight)):
            cut = micro_batches if everywhere else split[id(segments)]
            tasks += cut * len(segments) + (micro_batches - cut) + micro_batches * sends
    return tasks * len(program.replicas)


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

    program = step_program(setting, plan)
    if segments(program) <= detail:
        program = replace(program, detail=True)
    _check_length(program, notice)
    timeline = run(program, progress)
    if not closed_form:
        return Simulation(Prediction.of_timeline(setting, plan, timeline), None, timeline)
    prediction = Prediction.of(setting, plan)
    return Simulation(prediction, float(prediction.step.time[0]), timeline)


def _check_length(program: StepProgram, notice: Callable[[str], None] | None) -> None:
    """Announce the length of a long engine run, and refuse one that is too long for time and memory."""
    tasks = engine_tasks(program)
    seconds = tasks * TASK_S + segments(program) * SEGMENT_S
    if seconds > LONGEST_S or program.micro_batches > MOST_MICRO_BATCHES:
        raise InputError(
            f"the event engine would run about {tasks:,} tasks for {program.micro_batches:,} micro batches, "
            f"{seconds:,.0f} s; at most {LONGEST_S:.0f} s and {MOST_MICRO_BATCHES:,} micro batches "
            "are allowed: "
            "a smaller global_batch, or more data or micro_batch, is shorter"
        )
    if notice is not None and seconds >= NOTICED_S:
        notice(f"the event engine runs about {tasks:,} tasks, {seconds:.0f} s")
