"""The run of plans: saves, periods and effective time over arrays, and the inputs of one simulation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from core.durations import written
from core.errors import InputError
from simulator.checkpoints import Save, StepWindow
from simulator.checkpoints.rates import SaveRates
from simulator.checkpoints.state import SavedState
from simulator.faults import Exposed
from simulator.plan import Plans
from simulator.runs.closed_form import best_period, effective, elastic, simultaneous_losses
from simulator.runs.engine_saves import EngineSave, engine_save, timed
from simulator.runs.events import MOST_FAULTS
from simulator.runs.inputs import Dropped, RunInputs, SavedAt, Slow
from simulator.runs.question import AskedRun, Drop
from simulator.setting import Setting
from simulator.training import Step

UPDATE_PARTS = ("optimizer", "gradients", "parameters")
"""Parts of a step outside its passes: exposed exchanges of gradients and parameters, and the update."""

NETWORK_KINDS = ("gradients", "parameters", "pipeline", "expert", "context")
"""Kinds of communication that may cross the network between nodes."""

SPARES_SUFFICE = 0.99
"""Share of the time that `spares: auto` covers."""


@dataclass(frozen=True, eq=False)
class RunCase:
    """A run asked of plans of one setting; arrays of shape (plans,)."""

    setting: Setting
    plans: Plans
    step: Step
    request: AskedRun
    engine: bool = False
    """Whether saves are timed on the event engine, beside the step's traffic; of one plan."""

    @cached_property
    def job(self) -> Exposed:
        """Nodes in use."""
        cluster = self.setting.cluster
        return Exposed(cluster.nodes_for(cluster.devices), min(cluster.devices_per_node, cluster.devices))

    @cached_property
    def rate(self) -> float:
        """Faults of the job per second."""
        return self.request.faults.rate(self.job)

    @cached_property
    def rates(self) -> SaveRates:
        """Rates of the cluster's storage."""
        return SaveRates.of(self.setting.cluster)

    @cached_property
    def state(self) -> SavedState:
        """Bytes of a checkpoint."""
        return SavedState.of(self.setting, self.plans, self.step.stages, self.step.parameters)

    @cached_property
    def window(self) -> StepWindow:
        """The step that saves happen beside."""
        none, time = np.zeros(len(self.plans)), self.step.time
        after = sum((self.step.seconds.get(part, none) for part in UPDATE_PARTS), none)
        sent = sum((self.step.communication.get(kind, none) for kind in NETWORK_KINDS), none)
        return StepWindow(time, np.maximum(time - after, 0.0), np.maximum(time - sent, 0.0))

    @cached_property
    def save(self) -> Save | None:
        """One save; None without checkpoints."""
        mechanism = self.request.question.checkpoints
        if mechanism is None:
            return None
        save = mechanism.save(self.state, self.rates, self.window)
        if self.engine_save is None:
            return save
        writes = {place: float(mechanism.write_s(place, self.state, self.rates)[0]) for place in save.safe_s}
        return timed(save, writes, self.engine_save)

    @cached_property
    def engine_save(self) -> EngineSave | None:
        """The save of the only plan beside its step, where the engine is asked to time it."""
        mechanism = self.request.question.checkpoints
        if not self.engine or mechanism is None:
            return None
        plan = self.plans.plan(0)
        return engine_save(self.setting, plan, mechanism, self.state, self.rates, self.window)

    @cached_property
    def period(self) -> np.ndarray:
        """Seconds of work between saves: stated, or the best that the mechanism can keep up with."""
        mechanism, save, step = self.request.question.checkpoints, self.save, self.step.time
        if mechanism is None or save is None:
            return np.full(len(self.plans), np.inf)
        periods = np.empty(len(self.plans))
        for index, seconds in enumerate(step):
            stated = mechanism.period(float(seconds))
            periods[index] = np.nan if stated is None else stated
        least = np.maximum(save.least_period_s - save.stall_s, step)
        best = np.maximum(best_period(self.rate, np.maximum(save.stall_s, 1e-9)), least)
        steps = np.ceil(best / step * (1 - 1e-12)) * step
        return np.where(np.isnan(periods), steps, periods)

    @cached_property
    def stall(self) -> np.ndarray:
        """Seconds that training waits for a save."""
        return np.zeros(len(self.plans)) if self.save is None else self.save.stall_s

    @cached_property
    def late(self) -> np.ndarray:
        """Seconds from the end of a save's stall until it is safe from the loss of a node."""
        mechanism, save = self.request.question.checkpoints, self.save
        if mechanism is None or save is None:
            return np.zeros(len(self.plans))
        safe = [time for place, time in save.safe_s.items() if mechanism.lost_nodes(place) >= 1]
        nearest = np.minimum.reduce(safe) if safe else np.full(len(self.plans), np.inf)
        return np.maximum(nearest - save.stall_s, 0.0)

    def recovery_s(self, index: int) -> float:
        """Mean seconds of a recovery, without lost work and waiting."""
        return sum(self.inputs(index, check=False).means().values()) if self.rate else 0.0

    @cached_property
    def effective(self) -> np.ndarray:
        """Share of wall time that makes progress, by the closed forms; stragglers and spares not counted."""
        if isinstance(self.request.question.elastic, Drop):
            runs = (self.inputs(index, check=False) for index in range(len(self.plans)))
            drops = [run.dropped for run in runs if run.dropped]
            waits, out, replicas = np.array(
                [(drop.stall_s + drop.rejoin_s, drop.out_s, drop.replicas) for drop in drops]
            ).T
            return elastic(self.rate, self.period, self.stall, waits, out, replicas)
        recovery = np.array([self.recovery_s(index) for index in range(len(self.plans))])
        return effective(self.rate, self.period, self.stall, recovery, np.minimum(self.late, 1e9))

    def finish_s(self) -> np.ndarray:
        """Wall seconds of the run by the closed forms."""
        tokens = self.setting.training.tokens
        where = self.request.where
        steps = [self.request.question.steps_of(tokens, float(time), where) for time in self.step.time]
        return np.array(steps) * self.step.time / self.effective

    @cached_property
    def spares(self) -> int:
        """Nodes that wait to replace lost ones.

        Raises:
            InputError: the cluster has fewer.
        """
        stated = self.request.question.spares
        have = self.setting.cluster.nodes - self.job.nodes
        if stated == "auto":
            lost, repair = self.request.faults.loss_rate(self.job)
            stated = simultaneous_losses(self.job.nodes, lost / self.job.nodes, repair, SPARES_SUFFICE)
        if stated > have:
            raise InputError(
                f"{stated} spare nodes, but {self.setting.cluster.name} has {have} beside the "
                f"{self.job.nodes} in use",
                f"{self.request.where}.spares",
            )
        return stated

    def inputs(
        self, index: int = 0, slow: Sequence[Slow] = (), shrunk: Sequence[float] = (), check: bool = True
    ) -> RunInputs:
        """The inputs of one plan's simulation.

        Args:
            index: of the plan.
            slow: stragglers, timed.
            shrunk: speeds with fewer nodes, from one missing.
            check: refuse runs that cannot work.

        Raises:
            InputError: saves that take longer than their period or do not fit host memory, too many spares, a
                plan that cannot lose a replica, or a run that never finishes.
        """
        question, step = self.request.question, float(self.step.time[index])
        run = RunInputs(
            job=self.job,
            faults=self.request.faults,
            recovery=question.recovery,
            steps=question.steps_of(self.setting.training.tokens, step, self.request.where),
            step_s=step,
            period_s=float(self.period[index]),
            stall_s=float(self.stall[index]),
            tiers=self._tiers(index),
            spares=self.spares if check else 0,
            waits=question.recovery.replace.takes_spares or question.elastic == "wait",
            slow=tuple(slow),
            shrunk=tuple(shrunk),
        )
        if isinstance(question.elastic, Drop):
            run = _with_drop(run, question.elastic, int(self.plans.data[index]), self.request.where)
        if check:
            check_saves(self, index)
            if self.rate:
                check_progress(run, float(self.late[index]), self.request.where)
        return run

    def _tiers(self, index: int) -> tuple[SavedAt, ...]:
        mechanism, save = self.request.question.checkpoints, self.save
        if mechanism is None or save is None or math.isinf(float(self.period[index])):
            return ()
        cycle = float(self.period[index] + self.stall[index])
        return tuple(
            SavedAt(
                stored.place,
                1 if stored.every is None else max(round(stored.every / cycle), 1),
                float(save.safe_s[stored.place][index]),
                mechanism.lost_nodes(stored.place),
                float(save.load_s[stored.place][index]),
            )
            for stored in mechanism.saved_at
        )


def _with_drop(inputs: RunInputs, drop: Drop, replicas: int, where: str) -> RunInputs:
    """The run with its elastic figures, by default from the stages of a recovery."""
    if replicas < 2:
        raise InputError(
            f"the plan has {replicas} data-parallel replica and cannot lose one; at least 2 are needed",
            f"{where}.elastic",
        )
    means = inputs.means() if inputs.faults.processes else {}
    stall = sum(means.get(name, 0.0) for name in ("detect", "locate", "initialise"))
    out = sum(means.get(name, 0.0) for name in ("replace", "initialise", "load"))
    dropped = Dropped(
        replicas,
        stall if drop.stall is None else drop.stall,
        out if drop.out is None else drop.out,
        drop.rejoin,
    )
    return RunInputs(**{**vars(inputs), "dropped": dropped})


def check_saves(case: RunCase, index: int) -> None:
    """Refuse saves that do not fit host memory, or take longer than their period.

    Raises:
        InputError: as above.
    """
    mechanism, save = case.request.question.checkpoints, case.save
    if mechanism is None or save is None:
        return
    where = f"{case.request.where}.checkpoints"
    need, have = float(save.host_bytes[index]), case.rates.host_bytes
    if need > have:
        raise InputError(
            f"a save needs {need / 1e9:.0f} GB of host memory in a node, which has {have / 1e9:.0f} GB",
            f"{where}.places",
        )
    for place, times in save.safe_s.items():
        if not math.isfinite(float(times[index])):
            raise InputError(
                f"{case.setting.cluster.name} has no place {place!r}: its nodes have no SSD",
                f"{where}.places",
            )
    period, least = float(case.period[index]), float(save.least_period_s[index])
    if period + float(case.stall[index]) < least * (1 - 1e-9):
        raise InputError(
            f"a save takes {written(least)}, longer than its period of {written(period)}; the period must be "
            "at least as long",
            f"{where}.every",
        )
    for number, stored in enumerate(mechanism.saved_at):
        took = float(mechanism.write_s(stored.place, case.state, case.rates)[index])
        if stored.every is not None and stored.every < took:
            raise InputError(
                f"a save takes {written(took)} to {stored.place}, longer than its period of "
                f"{written(stored.every)}",
                f"{where}.places.{number}.every",
            )


def _check_elastic(dropped: Dropped, mtbf: float, where: str) -> None:
    """`check_progress` where a fault costs all replicas a pause, and one replica its absence."""
    pause = dropped.stall_s + dropped.rejoin_s
    if pause + dropped.out_s / dropped.replicas < mtbf:
        return
    key = "out" if dropped.out_s / dropped.replicas > pause else "stall"
    raise InputError(
        f"faults come every {written(mtbf)}, and each stops all replicas for {written(pause)} and one of "
        f"{dropped.replicas} for {written(dropped.out_s)}: the run never finishes; shorten elastic.{key} "
        "or the stages of the recovery that it follows from",
        f"{where}.elastic",
    )


def check_progress(inputs: RunInputs, late: float, where: str) -> None:
    """Refuse a run whose faults outrun its recovery (to first order, it never finishes) or are too many.

    Raises:
        InputError: the message says which stage to shorten, and to what.
    """
    means, mtbf = inputs.means(), 1 / inputs.faults.rate(inputs.job)
    if inputs.work_s / mtbf > MOST_FAULTS:
        raise InputError(
            f"faults come every {written(mtbf)}, {inputs.work_s / mtbf:,.0f} in {written(inputs.work_s)} of "
            f"work; a run may have {MOST_FAULTS:,}",
            f"{where}.faults",
        )
    if inputs.dropped:
        _check_elastic(inputs.dropped, mtbf, where)
        return
    lost = inputs.period_s / 2 + late if inputs.tiers else 0.0
    total = sum(means.values()) + lost
    if total < mtbf:
        return
    stages = {**means, "checkpoints.every": lost}
    longest = max(stages, key=lambda name: stages[name])
    target = stages[longest] - (total - mtbf)
    key = longest if "." in longest else f"recovery.{longest}"
    if target > 0:
        advice = f"shorten {key}, now {written(stages[longest])}, to below {written(target)}"
    else:
        rest = ", ".join(f"{name} {written(took)}" for name, took in stages.items() if took > 0)
        advice = f"no single stage suffices ({rest}); together they must fall below {written(mtbf)}"
    raise InputError(
        f"faults come every {written(mtbf)}, and each costs {written(sum(means.values()))} of recovery and "
        f"{written(lost)} of lost work: the run never finishes; {advice}",
        f"{where}.{key if target > 0 else 'recovery'}",
    )
