"""Left-out errors: a source's runs predicted without the constants that were chosen on it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from core.errors import UnknownNameError
from evidence.training.chosen_constants import chosen_on, without_constants
from evidence.training.parts import CLASSES, PartFigures, band_figures, source_of
from meshwright.validation.cases import TrainingCase
from meshwright.validation.ledger import ErrorSummary, Ledger, PredictedCase, predicted
from planner.execution import Execution
from planner.store import digest_of
from simulator.setting import Setting
from simulator.uncertainty import EVIDENCE, Evidence, evidence_of, model_errors

EACH = "source"
"""Word for every source in turn."""


@dataclass(frozen=True)
class LeftOutRun:
    """One measured step.

    Attributes:
        shipped: prediction with all constants.
        left_out: prediction without the constants chosen on the run's source, with the band of ``evidence``.
        evidence: steps of other sources near the setting.
    """

    shipped: PredictedCase
    left_out: PredictedCase
    evidence: Evidence

    @property
    def source(self) -> str:
        """The run's source."""
        return source_of(self.shipped.case.case_id)


@dataclass(frozen=True)
class LeftOutFigures:
    """Step errors of a group of runs, with all constants and with their source's left out; their bands."""

    shipped: ErrorSummary
    left_out: ErrorSummary
    band: PartFigures

    @classmethod
    def of(cls, runs: Sequence[LeftOutRun]) -> LeftOutFigures:
        """Figures of some runs."""
        return cls(
            ErrorSummary.of(run.shipped.relative_error for run in runs),
            ErrorSummary.of(run.left_out.relative_error for run in runs),
            band_figures(run.left_out for run in runs),
        )


@dataclass(frozen=True)
class LeftOutLedger:
    """All runs of the sources left out."""

    runs: Sequence[LeftOutRun]

    def by_evidence(self) -> dict[str, LeftOutFigures]:
        """Figures by what other sources measured near a run, most evidence first."""
        return {name: self._figures(lambda run, name=name: run.evidence == name) for name in EVIDENCE}

    def by_class(self) -> dict[str, LeftOutFigures]:
        """Figures by class of run."""
        return {
            name: self._figures(lambda run, inside=inside: inside(run.shipped.case))
            for name, inside in CLASSES.items()
        }

    def by_source(self) -> dict[str, LeftOutFigures]:
        """Figures by source, the largest sum of left-out errors first."""
        names = dict.fromkeys(run.source for run in self.runs)
        figures = {name: self._figures(lambda run, name=name: run.source == name) for name in names}
        return dict(sorted(figures.items(), key=lambda item: -_weight(item[1].left_out)))

    def _figures(self, inside: Callable[[LeftOutRun], bool]) -> LeftOutFigures:
        return LeftOutFigures.of([run for run in self.runs if inside(run)])


def _weight(errors: ErrorSummary) -> float:
    return errors.n * (errors.mean_abs_error or 0.0)


def leave_out(ledger: Ledger, names: str, execution: Execution | None = None) -> LeftOutLedger:
    """Predict the runs of one source, or of each in turn, without the constants chosen on it.

    Constants of kernels and collectives stay: they come from tables, not from steps. A source that no
    constant was chosen on keeps its prediction. What is measured near a run counts other sources only.

    Args:
        ledger: runs with their predictions; rows kept apart left away.
        asked: a source, or ``EACH``.
        execution: where sources are predicted; by default in this process.

    Raises:
        UnknownNameError: no run is of the source.
        MeshwrightError: a worker was killed, or the store's disk is full.
    """
    entries = [entry for entry in ledger.entries if entry.relative_error is not None]
    sources = sorted({source_of(entry.case.case_id) for entry in entries})
    if names != EACH and names not in sources:
        raise UnknownNameError("source", names, [EACH, *sources], "--leave-out")
    left = sources if names == EACH else [names]
    by_source = {
        source: [entry for entry in entries if source_of(entry.case.case_id) == source] for source in left
    }
    tuned = [source for source in left if chosen_on(source)]
    calls = [(source, [entry.case for entry in by_source[source]]) for source in tuned]
    changed: dict[str, PredictedCase] = {}
    for number, prediction, _ in (execution or Execution(workers=1)).run(_without, calls, _inputs):
        for entry in by_source[tuned[number]]:
            if values := prediction.get(entry.case.case_id):
                changed[entry.case.case_id] = replace(entry, **values)
    runs = []
    for source, mine in by_source.items():
        measured = measured_devices(
            entry.case for entry in entries if source_of(entry.case.case_id) != source
        )
        for entry in mine:
            evidence = evidence_of(entry.case.setting, measured)
            later = changed.get(entry.case.case_id, entry)
            runs.append(LeftOutRun(entry, _widened(later, evidence), evidence))
    return LeftOutLedger(runs)


def left_out_width(setting: Setting, evidence: Evidence) -> float:
    """How much wider the band of a setting is with some evidence than with all."""
    errors = model_errors()
    shipped = errors.parts.scale[evidence_of(setting, errors.measured)]
    return max(errors.parts.scale[evidence] / shipped, 1.0)


def _widened(entry: PredictedCase, evidence: Evidence) -> PredictedCase:
    """A prediction with the band that its setting has with some evidence."""
    if entry.uncertainty is None:
        return entry
    wider = left_out_width(entry.case.setting, evidence)
    return replace(entry, uncertainty=entry.uncertainty * wider)


def measured_devices(cases: Iterable[TrainingCase]) -> Mapping[str, set[str]]:
    """Devices with measured steps, by framework."""
    devices: dict[str, set[str]] = {}
    for case in cases:
        devices.setdefault(case.setting.framework.name, set()).add(case.setting.cluster.device.name)
    return devices


def _inputs(source: str, cases: Sequence[TrainingCase]) -> dict[str, Any]:
    """Inputs of a source's left-out predictions."""
    inputs = [[case.case_id, case.setting, case.plan] for case in cases]
    return {"ask": "leave out", "source": source, "cases": digest_of(inputs)}


def _without(source: str, cases: Sequence[TrainingCase]) -> dict[str, Any]:
    """Predictions of a source's cases without its constants, by case."""
    with without_constants(source) as change:
        entries = predicted([change(case) for case in cases])
    names = ("predicted_step_s", "predicted_peak_bytes", "uncertainty", "predicted_figure_bytes")
    return {entry.case.case_id: {name: getattr(entry, name) for name in names} for entry in entries}
