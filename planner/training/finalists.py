"""Finalists: plans whose schedule has a bound alone, timed by the event engine before they are ranked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.errors import InputError
from planner.training.families import layouts
from planner.training.metrics import OBJECTIVES, Metrics
from simulator.engine import Timeline
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.plan import Plan, Plans
from simulator.schedules import get_schedule
from simulator.setting import Setting
from simulator.training import Step, predict
from simulator.training.step_graph import run
from simulator.training.step_graph.account import BUBBLE, account, busiest, communicated
from simulator.training.step_graph.build import step_program
from simulator.training.step_graph.length import check_length

FINALISTS = 24
"""Most plans that one search times on the engine, beside the best plan of each family."""
OF_A_SCHEDULE = 3
"""Most of them with one schedule, where a search has several: some bounds are far below the step."""


def engine_step(setting: Setting, plan: Plan, timeline: Timeline) -> Step:
    """The step of an engine run; its breakdown is that of the busiest rank."""
    plans = Plans.of(plan)
    stages = Stages.of(setting, plans)
    rank = busiest(timeline)
    parts = account(timeline, rank)
    # Without synchronisation, a rank's next step begins before the last rank ends this one.
    parts[BUBBLE] -= timeline.seconds - timeline.period
    seconds = {name: np.array([part]) for name, part in parts.items()}
    traffic = {name: np.array([total]) for name, total in communicated(timeline, rank).items()}
    return Step(np.array([timeline.period]), seconds, traffic, stages, parameters(setting, plans, stages))


def bounded(plans: Plans) -> np.ndarray:
    """Which plans have a bound instead of a step time, shape (plans,): pipelines without a closed form."""
    bound = np.array([not get_schedule(name).has_closed_form for name in plans.schedule_names])
    return bound[plans.schedule] & (plans.pipeline > 1)


class Finalists:
    """Engine runs of one search, each plan once."""

    def __init__(self, setting: Setting, objective: str) -> None:
        self.setting, self.objective = setting, objective
        self.steps: dict[str, Step | None] = {}
        self.problem: InputError | None = None

    def ranked(self, plans: Plans, values: np.ndarray, top: int) -> tuple[Plans, np.ndarray]:
        """The plans with exact values, in order; bounds that no run made exact are left out.

        The engine times one plan of each layout and schedule, the lowest bounds first, until ``top`` plans
        are better than the next bound.

        Args:
            plans: in the order of ``values``.
            values: the figure that ranks them, shape (plans,); a lower bound where `bounded`.
            top: plans to show.
        """
        rows = np.flatnonzero(bounded(plans))
        if not len(rows):
            return plans, values
        exact = values.astype(float)
        exact[rows] = np.inf
        kinds = np.stack([layouts(plans)[rows], plans.schedule[rows]])
        first = rows[np.sort(np.unique(kinds, axis=1, return_index=True)[1])]
        if len(plans.schedule_names) > 1:
            names = plans.schedule[first]
            first = first[
                [np.count_nonzero(names[:i] == name) < OF_A_SCHEDULE for i, name in enumerate(names)]
            ]
        for row in first[:FINALISTS]:
            if np.count_nonzero(exact <= values[row]) >= top:
                break
            exact[row] = self._value(plans.plan(int(row)))
        order = np.argsort(exact, kind="stable")
        order = order[np.isfinite(exact[order])]
        return plans.take(order), exact[order]

    def step(self, plans: Plans) -> Step:
        """The steps of plans: analytic, and those of the engine where it ran.

        Idle time is the engine's. The other parts are the analytic ones, scaled to the engine's step: errors
        of parts are known for these.
        """
        step = predict(self.setting, plans)
        time = step.time.copy()
        seconds = {name: values.copy() for name, values in step.seconds.items()}
        for row in np.flatnonzero(bounded(plans)):
            timed = self.steps.get(repr(plans.plan(int(row))))
            if timed is None:
                continue
            time[row], idle = timed.time[0], timed.seconds[BUBBLE][0]
            busy = sum(values[row] for name, values in seconds.items() if name != BUBBLE)
            for name, values in seconds.items():
                values[row] = idle if name == BUBBLE else values[row] * (time[row] - idle) / busy
        return replace(step, time=time, seconds=seconds)

    def _value(self, plan: Plan) -> float:
        """The figure that ranks a plan, from the engine; infinite where the run would take too long."""
        key = repr(plan)
        if key not in self.steps:
            self.steps[key] = self._run(plan)
        step = self.steps[key]
        if step is None:
            return np.inf
        if self.objective == "time":
            return float(step.time[0])
        return float(getattr(Metrics.of(self.setting, Plans.of(plan), step), OBJECTIVES[self.objective])[0])

    def _run(self, plan: Plan) -> Step | None:
        program = step_program(self.setting, plan)
        try:
            check_length(program)
            return engine_step(self.setting, plan, run(program))
        except InputError as problem:
            self.problem = self.problem or problem
            return None
