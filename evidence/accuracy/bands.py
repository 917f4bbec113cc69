"""How well the printed bands hold, and the errors of parts that they are made of.

    python -m benchmarks.bands RUNS.csv [MORE.csv ...] [--kept-apart NEW.csv] [--new OPEN.csv] [--write]

A band of a step adds the errors of its parts (``simulator/uncertainty/errors.yaml``); the band of the ratio
of two plans adds those that differ. ``benchmarks.part_errors`` fits them. The width of a band follows from
sources that nothing was tuned to (the open rows of NEW, all rows of OPEN), by what was measured near them in
RUNS (``simulator.uncertainty.EVIDENCE``): their framework on their device, or less. Each source has one vote.

Coverage is printed twice: with the errors that ship, and for each source with the errors fitted to the
other sources. A source is the part of a case name before the first dash or digit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Annotated

import numpy as np
import yaml

from core.files import write_text
from evidence.command import command
from evidence.fits.part_errors import PredictedRun, Variances, fitted, pairs, weighted_quantile
from evidence.training.parts import divided
from meshwright.validation.ledger import PredictedCase, evaluate
from meshwright.validation.rows import published_files, read_rows
from simulator.plan import Plans
from simulator.schedules import schedules
from simulator.training import predict
from simulator.uncertainty import (
    ERRORS_FILE,
    EVIDENCE,
    PARTS,
    ModelErrors,
    PartErrors,
    calibration_errors,
    default_headroom,
    evidence_of,
    exposure,
    model_errors,
)


def source_of(case_id: str) -> str:
    """Where a case comes from, by the beginning of its name."""
    return re.split(r"[-\d]", case_id, maxsplit=1)[0] or case_id


def run_of(entry: PredictedCase) -> PredictedRun:
    """One entry as a run."""
    setting, plan = entry.case.setting, entry.case.plan
    step, errors = predict(setting, Plans.of(plan)), calibration_errors(setting)
    return PredictedRun(
        source=source_of(entry.case.case_id),
        error=float(entry.relative_error or 0.0),
        exposed=exposure(step)[0],
        variances=np.array([errors[name] for name in PARTS]) ** 2,
        framework=setting.framework.name,
        device=setting.cluster.device.name,
        generation=setting.cluster.device.generation.name,
        vendor=setting.cluster.device.vendor,
        experts=setting.model.moe is not None,
        question=repr(setting),
        plan=repr(plan),
    )


def measured_on(runs: Iterable[PredictedRun]) -> dict[str, list[str]]:
    """Devices with measured steps, by framework."""
    devices: dict[str, set[str]] = {}
    for run in runs:
        devices.setdefault(run.framework, set()).add(run.device)
    return {name: sorted(devices[name]) for name in sorted(devices)}


def with_evidence(
    entries: Sequence[PredictedCase], runs: Sequence[PredictedRun], old_sources: set[str]
) -> list[PredictedRun]:
    """The runs with what other sources measured near them."""
    closest = {
        source: measured_on(r for r in runs if r.source != source and r.source in old_sources)
        for source in {run.source for run in runs}
    }
    return [
        replace(
            run,
            evidence=evidence_of(entry.case.setting, closest[run.source]),
            new=run.source not in old_sources,
        )
        for entry, run in zip(entries, runs, strict=True)
    ]


def half_width(run: PredictedRun, errors: PartErrors) -> float:
    """Half-width of a run's band, as ``simulator.uncertainty.band`` has it."""
    return _variances(errors).width(run, errors.scale[run.evidence])  # type: ignore[index]


def _variances(errors: PartErrors) -> Variances:
    parts = np.array([errors.spread[name] for name in PARTS]) ** 2
    return Variances(parts, errors.residual**2)


def left_out(runs: Sequence[PredictedRun]) -> dict[str, PartErrors]:
    """For each source the errors fitted to the other sources."""
    _, start = fitted(runs)
    return {
        source: fitted([run for run in runs if run.source != source], start)[0]
        for source in sorted({run.source for run in runs})
    }


def print_steps(runs: Sequence[PredictedRun], shipped: PartErrors, others: dict[str, PartErrors]) -> None:
    """Coverage and half-widths of steps by group."""
    groups: dict[str, Callable[[PredictedRun], bool]] = {
        "dense": lambda run: not run.experts,
        "experts": lambda run: run.experts,
        "AMD": lambda run: run.vendor == "amd",
        "Blackwell": lambda run: run.generation == "blackwell",
        "seen sources": lambda run: not run.new,
        "new sources": lambda run: run.new,
        **{
            f"new, near: {name}": (lambda run, name=name: run.new and run.evidence == name)
            for name in EVIDENCE
        },
        "all": lambda run: True,
    }
    print(f"{len(runs)} steps, {len({run.source for run in runs})} sources; share inside the 90 % band")
    print(
        f"{'':34s} {'steps':>6s} {'as shipped':>11s} {'half-width':>11s} {'source left out':>16s} "
        f"{'half-width':>11s} {'|error|':>8s} {'p90':>8s}"
    )
    for name, inside in groups.items():
        some = [run for run in runs if inside(run)]
        if not some:
            continue
        size = np.array([abs(run.error) for run in some])
        columns = []
        for errors in (dict.fromkeys(others, shipped), others):
            width = np.array([half_width(run, errors[run.source]) for run in some])
            columns += [f"{np.mean(size <= width):.1%}", f"{np.median(width):.1%}"]
        print(
            f"{name:34s} {len(some):6d} {columns[0]:>11s} {columns[1]:>11s} {columns[2]:>16s} "
            f"{columns[3]:>11s} {np.median(size):8.1%} {np.percentile(size, 90):8.1%}"
        )


def print_ratios(runs: Sequence[PredictedRun], shipped: PartErrors, others: dict[str, PartErrors]) -> None:
    """Coverage and half-widths of ratios of two plans of one question."""
    compared = pairs(runs)
    size = np.array([abs(error) for _, _, error in compared])
    print(f"{len(compared)} pairs of plans of one question; share inside the band of their ratio")
    for title, errors in (("as shipped", dict.fromkeys(others, shipped)), ("source left out", others)):
        width = np.array(
            [
                _variances(errors[first.source]).pair_width(first, other, errors[first.source].ratio_scale)
                for first, other, _ in compared
            ]
        )
        inside = size <= width
        sources = [first.source for first, _, _ in compared]
        by_source = np.mean([np.mean(inside[np.array(sources) == name]) for name in set(sources)])
        print(
            f"  {title:16s} {np.mean(inside):.1%} of pairs, {by_source:.1%} over sources, half-width "
            f"{np.median(width):.1%} (that of the widest tenth {np.percentile(width, 90):.1%}), "
            f"error {np.median(size):.1%}"
        )


def pair_gaps(entries: Sequence[PredictedCase]) -> np.ndarray:
    """Predicted and measured log ratio of the plans of each question, shape (pairs, 2)."""
    groups: dict[str, dict[str, list[PredictedCase]]] = {}
    for entry in entries:
        if entry.case.measured_step_s:
            plans = groups.setdefault(repr(entry.case.setting), {})
            plans.setdefault(repr(entry.case.plan), []).append(entry)
    gaps = []
    for plans in groups.values():
        points = [
            (
                np.log(same[0].predicted_step_s),
                np.log(np.mean([entry.case.measured_step_s or 0.0 for entry in same])),
            )
            for same in plans.values()
        ]
        for first in range(len(points)):
            for other in range(first):
                gaps.append((points[first][0] - points[other][0], points[first][1] - points[other][1]))
    return np.array(gaps).reshape(-1, 2)


def print_order(gaps: np.ndarray) -> None:
    """How often two plans are in the right order, by their predicted distance."""
    off = np.abs(gaps[:, 1] - gaps[:, 0])
    print(f"{len(gaps)} pairs of plans: error of the difference, median {np.median(off):.3f}")
    for least, upper in ((0, 0.01), (0.01, 0.03), (0.03, 0.06), (0.06, 0.1), (0.1, 0.5)):
        inside = (np.abs(gaps[:, 0]) >= least) & (np.abs(gaps[:, 0]) < upper)
        right = np.mean(np.sign(gaps[inside, 0]) == np.sign(gaps[inside, 1])) if inside.any() else np.nan
        print(
            f"  predicted {least:.0%} to {upper:.0%} apart: {inside.sum():4d}, in the right order {right:.0%}"
        )


def print_memory(entries: Sequence[PredictedCase]) -> None:
    """Quantiles of measured over predicted peaks; ``benchmarks.memory_chances`` fits their errors."""
    peaks = [entry for entry in entries if entry.memory_error is not None]
    ratio = [-float(np.log1p(entry.memory_error or 0.0)) for entry in peaks]
    sources = [source_of(entry.case.case_id) for entry in peaks]
    low, middle, high = (weighted_quantile(ratio, sources, share) for share in (0.05, 0.5, 0.95))
    promised = [1 / (1 - default_headroom(entry.case.setting)) for entry in peaks]
    beyond = np.mean(np.exp(ratio) > np.array(promised))
    print(
        f"{len(peaks)} peaks of {len(set(sources))} sources: measured over predicted, 5/50/95 % "
        f"{np.exp(low):.3f} {np.exp(middle):.3f} {np.exp(high):.3f}; above the promise of the default "
        f"headroom: {beyond:.1%}"
    )


@command
def main(
    files: Sequence[Path] = (),
    *,
    kept_apart: Annotated[Sequence[Path], "CSV with a third kept apart"] = (),
    new: Annotated[Sequence[Path], "CSV of new sources, all open"] = (),
    write: Annotated[bool, f"write {ERRORS_FILE.name}"] = False,
) -> None:
    """Print coverage and errors; write them if asked."""
    files = files or published_files()
    parted = divided(evaluate([*files, *kept_apart, *new]), [*files, *new], kept_apart)
    # A guessed micro batch says nothing of the model's error.
    stated = [e for e in parted.open_ledger().entries if "micro batch" not in e.case.assumed]
    entries = [e for e in stated if schedules[e.case.plan.schedule].has_closed_form]
    steps = [entry for entry in entries if entry.relative_error is not None]
    of_files = {source_of(row["case_id"]) for file in files for row in read_rows(file)}
    runs = with_evidence(steps, [run_of(entry) for entry in steps], of_files)
    errors, _ = fitted(runs)
    others = left_out(runs)
    old = model_errors()
    print_steps(runs, old.parts, others)
    print_ratios(runs, old.parts, others)
    print("errors of parts fitted:", errors.model_dump(), "shipped:", old.parts.model_dump())
    print_memory(entries)
    gaps = pair_gaps(entries)
    print_order(gaps)
    if write:
        names = ", ".join(file.name for file in (*files, *kept_apart, *new))
        off = float(np.median(np.abs(gaps[:, 1] - gaps[:, 0])))
        fitted_errors: ModelErrors = old.model_copy(
            update={
                "source": f"evidence.accuracy.bands, {date.today()}: {len(runs)} steps of {names}",
                "parts": errors,
                "measured": measured_on(run for run in runs if run.source in of_files),
                "sources": {
                    name: len({run.source for run in runs if run.new and run.evidence == name})
                    for name in EVIDENCE
                },
                "difference": old.difference.model_copy(update={"median": round(off, 3)}),
            }
        )
        write_text(ERRORS_FILE, yaml.safe_dump(fitted_errors.model_dump(), sort_keys=False, width=110))
