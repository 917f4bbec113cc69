"""Predicted against measured: all cases of a ledger, predicted from their configurations alone."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import MeshwrightError
from meshwright.validation.cases import STAGES, TrainingCase, read_cases
from planner.execution import Execution
from planner.store import digest_of
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.levers import SHARED
from simulator.plan import Plans
from simulator.rules import breaks
from simulator.schedules import schedules
from simulator.training import predict
from simulator.training.memory import StageMemory, memory
from simulator.uncertainty import band


@dataclass(frozen=True)
class PredictedCase:
    """One case with its prediction."""

    case: TrainingCase
    predicted_step_s: float
    predicted_peak_bytes: float
    uncertainty: float | None
    """Half-width of the band as a share of the step; none where the event engine timed it."""
    predicted_figure_bytes: float | None = None
    """Peak as the source counts it: of its stage, and what its tool counts; by default the predicted peak."""

    @property
    def relative_error(self) -> float | None:
        """Predicted over measured step time, less 1; none where no step time was measured."""
        measured = self.case.measured_step_s
        return None if measured is None else self.predicted_step_s / measured - 1

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured peak memory, less 1; none where no peak was measured."""
        measured = self.case.measured_peak_bytes
        return None if measured is None else self.figure_bytes / measured - 1

    @property
    def figure_bytes(self) -> float:
        """Predicted bytes that a measured peak is compared with."""
        figure = self.predicted_figure_bytes
        return self.predicted_peak_bytes if figure is None else figure

    @cached_property
    def breaks(self) -> tuple[str, ...]:
        """Rules of its release that the run broke all the same: it ran, and is predicted as published."""
        return tuple(breaks(self.case.setting, self.case.plan))

    @property
    def fits(self) -> bool:
        """Whether the predicted peak is within the device's memory."""
        return self.predicted_peak_bytes <= self.case.setting.cluster.device.memory_bytes


@dataclass(frozen=True)
class ErrorSummary:
    """Errors of some cases, as shares; none where ``n`` is 0. ``bias`` is the mean of the signed ones."""

    n: int
    median_abs_error: float | None
    p90_abs_error: float | None
    mean_abs_error: float | None
    bias: float | None

    @classmethod
    def of(cls, errors: Iterable[float | None]) -> ErrorSummary:
        """Sum up signed relative errors; cases without a measurement do not count."""
        signed = np.array([error for error in errors if error is not None])
        if len(signed) == 0:
            return cls(0, None, None, None, None)
        size = np.abs(signed)
        return cls(
            n=len(signed),
            median_abs_error=float(np.median(size)),
            p90_abs_error=float(np.percentile(size, 90)),
            mean_abs_error=float(size.mean()),
            bias=float(signed.mean()),
        )


@dataclass(frozen=True)
class Ledger:
    """All cases of some files: predicted ones, and skipped ones as (case, reason)."""

    entries: Sequence[PredictedCase]
    skipped: Sequence[tuple[str, str]]

    @cached_property
    def summary(self) -> ErrorSummary:
        """Step-time errors of cases with a stated network (if needed) and micro batch."""
        return ErrorSummary.of(entry.relative_error for entry in self.entries if not entry.case.is_guess)

    @cached_property
    def assumed_summary(self) -> ErrorSummary:
        """Step-time errors of the cases whose network or micro batch is assumed."""
        return ErrorSummary.of(entry.relative_error for entry in self.entries if entry.case.is_guess)

    @cached_property
    def memory_summary(self) -> ErrorSummary:
        """Peak-memory errors of all cases."""
        return ErrorSummary.of(entry.memory_error for entry in self.entries)

    def grouped(self, key: Callable[[TrainingCase], str]) -> dict[str, ErrorSummary]:
        """Step-time errors by ``key`` of a case, sorted; without guessed cases."""
        groups: dict[str, list[float | None]] = {}
        for entry in self.entries:
            if entry.case.is_guess:
                continue
            groups.setdefault(key(entry.case), []).append(entry.relative_error)
        return {name: ErrorSummary.of(groups[name]) for name in sorted(groups)}


def evaluate(
    paths: Iterable[Path],
    progress: Callable[[float], None] | None = None,
    execution: Execution | None = None,
) -> Ledger:
    """Predict every case of the files with a complete configuration.

    Args:
        paths: CSV files of published runs.
        progress: called periodically with the finished share of cases.
        execution: where cases are predicted; by default in this process.

    Raises:
        InputError: a file is not readable or lacks a needed column.
        MeshwrightError: a worker was killed, or the store's disk is full.
    """
    cases: list[TrainingCase] = []
    skipped: list[tuple[str, str]] = []
    for path in paths:
        read, left_out = read_cases(path)
        cases += read
        skipped += left_out
    entries: dict[int, PredictedCase] = {}
    reasons: dict[int, str] = {}
    groups = _by_setting(cases)
    calls = [([cases[index] for index in same],) for same in groups]
    for number, outcome, _ in (execution or Execution(workers=1)).run(_plain, calls, _inputs):
        for place, index in enumerate(groups[number]):
            if "problem" in outcome:
                reasons[index] = outcome["problem"]
            else:
                entries[index] = PredictedCase(cases[index], **outcome["predicted"][place])
        if progress:
            progress((len(entries) + len(reasons)) / len(cases))
    skipped += [(cases[index].case_id, reasons[index]) for index in sorted(reasons)]
    return Ledger([entries[index] for index in sorted(entries)], skipped)


def predicted(cases: Sequence[TrainingCase]) -> list[PredictedCase]:
    """Predictions of cases in this process; cases whose prediction fails are left out."""
    entries: list[PredictedCase] = []
    for group in _by_setting(cases):
        try:
            entries += _predicted([cases[index] for index in group])
        except MeshwrightError:
            continue
    return entries


def _inputs(same: Sequence[TrainingCase]) -> dict[str, Any]:
    """Inputs of the predictions of cases that share a setting."""
    return {"ask": "validate", "cases": digest_of([same[0].setting, [case.plan for case in same]])}


def _plain(same: Sequence[TrainingCase]) -> dict[str, Any]:
    """Predictions of cases that share a setting as plain data, or the reason why there are none."""
    try:
        entries = _predicted(same)
    except MeshwrightError as reason:
        return {"problem": str(reason)}
    names = ("predicted_step_s", "predicted_peak_bytes", "uncertainty", "predicted_figure_bytes")
    return {"predicted": [{name: getattr(entry, name) for name in names} for entry in entries]}


def _by_setting(cases: Sequence[TrainingCase]) -> list[list[int]]:
    """Indices of the cases that share a setting, a schedule and levers, so that one call predicts them."""
    groups: dict[str, list[int]] = {}
    for index, case in enumerate(cases):
        levers = [getattr(case.plan, name) for name in SHARED]
        groups.setdefault(f"{case.plan.schedule} {levers} {case.setting!r}", []).append(index)
    return list(groups.values())


def _predicted(cases: Sequence[TrainingCase]) -> list[PredictedCase]:
    """Entries of cases that share a setting and a schedule, in their order."""
    return [entry if entry.case.repeated is None else _between(entry.case) for entry in _as_planned(cases)]


def _between(case: TrainingCase) -> PredictedCase:
    """The entry of a run that recomputes a part of its layers: between those of none and of all."""
    ends = [case.plan.model_copy(update={"recompute": layers}) for layers in ("none", "full")]
    none, full = _as_planned([dataclasses.replace(case, plan=plan, repeated=None) for plan in ends])
    share = case.repeated or 0.0

    def mixed(value: Callable[[PredictedCase], float]) -> float:
        return (1 - share) * value(none) + share * value(full)

    return PredictedCase(
        case,
        mixed(lambda entry: entry.predicted_step_s),
        mixed(lambda entry: entry.predicted_peak_bytes),
        (full if share > 0.5 else none).uncertainty,
        mixed(lambda entry: entry.figure_bytes),
    )


def _as_planned(cases: Sequence[TrainingCase]) -> list[PredictedCase]:
    """Entries of cases as their plans state them; without a closed form, from the event engine."""
    if not schedules[cases[0].plan.schedule].has_closed_form:
        return [_simulated(case) for case in cases]
    setting, plans = cases[0].setting, Plans.of(case.plan for case in cases)
    step = predict(setting, plans)
    footprint = memory(setting, plans, step.stages, step.parameters)
    shares = band(setting, step)
    return [
        PredictedCase(
            case,
            float(step.time[index]),
            float(footprint.peak[index]),
            float(shares[index]),
            _figure(case, footprint, index),
        )
        for index, case in enumerate(cases)
    ]


def _figure(case: TrainingCase, footprint: StageMemory, index: int) -> float:
    """Bytes of the fullest device, or of the stage that the source names, as its figure counts them."""
    counted = footprint.counted(case.peak_counts)[:, index]
    if case.peak_of in STAGES:
        return float(counted[STAGES[case.peak_of]])
    return float(counted.max())


def _simulated(case: TrainingCase) -> PredictedCase:
    """The entry of one case from the event engine."""
    from simulator.training.step_graph import run
    from simulator.training.step_graph.build import step_program

    timeline = run(step_program(case.setting, case.plan))
    peak = max(timeline.peak_memory(rank) for rank in range(timeline.ranks))
    plans = Plans.of(case.plan)
    stages = Stages.of(case.setting, plans)
    footprint = memory(case.setting, plans, stages, parameters(case.setting, plans, stages))
    share = footprint.counted(case.peak_counts).max() / footprint.peak[0]
    return PredictedCase(case, timeline.period, peak, None, peak * float(share))
