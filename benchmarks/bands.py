"""How well the printed bands hold, and the model errors that they are made of.

    python -m benchmarks.bands RUNS.csv [MORE.csv ...] [--kept-apart NEW.csv] [--write]

A band adds the errors of kernels, of links and of the model itself (``simulator/model_errors.yaml``). The
model's error of a kind of setting is what 90 % of its runs stay within once kernels and links are taken
off; sources count alike, whatever their number of rows. A kind of fewer than four sources has at least the
error of all kinds, since a 90th percentile of two or three sources says little.

A setting has at least the error of sources that nothing was tuned to (the open rows of NEW), by what was
measured near it in RUNS (``simulator.uncertainty.EVIDENCE``): its framework on its device, or less. With NEW,
``--write`` writes these errors and leaves those by kind.

Coverage is printed twice: with the errors that ship, and for each source with the errors fitted to the
other sources. A source is the part of a case name before the first dash or digit.
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

import numpy as np

from hwmodels.files import write_text
from meshwright.validation.ledger import PredictedCase, evaluate
from meshwright.validation.parts import divided
from meshwright.validation.rows import published_files, read_rows
from simulator.plan import Plans
from simulator.schedules import schedules
from simulator.training import predict
from simulator.uncertainty import (
    ERRORS_FILE,
    EVIDENCE,
    calibration_band,
    default_headroom,
    evidence_of,
    kind_of,
    model_errors,
)

NINE_IN_TEN = 0.9
ENOUGH_SOURCES = 4


@dataclass
class PredictedRun:
    """A measured step: relative error of the prediction, and the part that kernels and links account for.

    ``evidence`` is what other sources measured near it; ``new`` says that nothing was tuned to its source.
    """

    source: str
    kind: str
    experts: bool
    generation: str
    vendor: str
    error: float
    calibration: float
    framework: str = ""
    device: str = ""
    evidence: str = EVIDENCE[0]
    new: bool = False


def arguments():
    """Files of runs; those that ship by default."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument(
        "--kept-apart", type=Path, action="append", default=[], help="CSV with a third kept apart"
    )
    parser.add_argument("--write", action="store_true", help=f"write {ERRORS_FILE.name}")
    return parser.parse_args()


def source_of(case_id: str) -> str:
    """Where a case comes from, by the beginning of its name."""
    return re.split(r"[-\d]", case_id, maxsplit=1)[0] or case_id


def run_of(entry: PredictedCase) -> PredictedRun:
    """One entry as a run."""
    setting, plan = entry.case.setting, entry.case.plan
    step = predict(setting, Plans.of(plan))
    return PredictedRun(
        source_of(entry.case.case_id),
        kind_of(setting),
        setting.model.moe is not None,
        setting.cluster.device.generation,
        setting.cluster.device.vendor,
        float(entry.relative_error or 0.0),
        float(calibration_band(setting, step)[0]),
        setting.framework.name,
        setting.cluster.device.name,
    )


def weighted_quantile(values, sources, share):
    """Quantile in which each source weighs the same."""
    counts = Counter(sources)
    weights = np.array([1 / counts[source] for source in sources])
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(np.asarray(values)[order][np.searchsorted(reached, share - 1e-9)])


def fitted(runs):
    """The model's error for some runs of one kind: beyond kernels and links, for 90 % of them."""
    beyond = [np.sqrt(max(run.error**2 - run.calibration**2, 0.0)) for run in runs]
    return weighted_quantile(beyond, [run.source for run in runs], NINE_IN_TEN)


def error_of(kind, runs):
    """The model's error of a kind, at least that of all runs where few sources have the kind."""
    same = [run for run in runs if run.kind == kind]
    if len({run.source for run in same}) >= ENOUGH_SOURCES:
        return fitted(same)
    return max(fitted(runs), fitted(same) if same else 0.0)


def covered(runs, errors, evidence):
    """Share of runs inside their band."""
    inside = [
        abs(run.error) <= np.hypot(run.calibration, max(errors[run.kind], evidence.get(run.evidence, 0.0)))
        for run in runs
    ]
    return float(np.mean(inside)) if inside else float("nan")


def measured_on(runs):
    """Devices with measured steps, by framework."""
    found = {}
    for run in runs:
        found.setdefault(run.framework, set()).add(run.device)
    return {name: sorted(found[name]) for name in sorted(found)}


def with_evidence(entries, runs, old_sources):
    """The runs with what other sources measured near them."""
    made = []
    for entry, run in zip(entries, runs, strict=True):
        others = [each for each in runs if each.source != run.source and each.source in old_sources]
        near = evidence_of(entry.case.setting, measured_on(others))
        made.append(replace(run, evidence=near, new=run.source not in old_sources))
    return made


def evidence_errors(runs):
    """The model's error by evidence, never less with less; of runs whose sources nothing was tuned to."""
    errors, least = {}, 0.0
    for name in EVIDENCE:
        same = [run for run in runs if run.evidence == name]
        if same:
            least = max(least, fitted(same))
        errors[name] = round(least, 3)
    return errors


def left_out(runs):
    """Runs judged by errors fitted to other sources."""
    made = []
    for source in sorted({run.source for run in runs}):
        others = [run for run in runs if run.source != source]
        errors = {kind: error_of(kind, others) for kind in {run.kind for run in runs if run.source == source}}
        evidence = evidence_errors([run for run in others if run.new])
        made += [(run, covered([run], errors, evidence) == 1.0) for run in runs if run.source == source]
    return made


def pair_errors(entries):
    """How far the predicted ratio of two plans of one question is off, and the predicted gap; logarithms."""
    groups = {}
    for entry in entries:
        if entry.case.measured_step_s:
            plans = groups.setdefault(repr(entry.case.setting), {})
            plans.setdefault(repr(entry.case.plan), []).append(entry)
    found = []
    for plans in groups.values():
        points = [
            (
                np.log(same[0].predicted_step_s),
                np.log(np.mean([entry.case.measured_step_s for entry in same])),
            )
            for same in plans.values()
        ]
        for one in range(len(points)):
            for other in range(one):
                gap = points[one][0] - points[other][0]
                found.append((gap, points[one][1] - points[other][1]))
    return np.array(found).reshape(-1, 2)


def main():
    """Print coverage and errors; write them if asked."""
    asked = arguments()
    files = asked.files or published_files()
    parted = divided(evaluate([*files, *asked.kept_apart]), files, asked.kept_apart)
    # A guessed micro batch says nothing of the model's error.
    stated = [e for e in parted.open_ledger().entries if "micro batch" not in e.case.assumed]
    entries = [e for e in stated if schedules[e.case.plan.schedule].has_closed_form]
    steps = [entry for entry in entries if entry.relative_error is not None]
    runs = [run_of(entry) for entry in steps]
    of_files = {source_of(row["case_id"]) for file in files for row in read_rows(file)}
    runs = with_evidence(steps, runs, of_files)
    shipped, near = model_errors().step, model_errors().evidence
    after = left_out(runs)
    groups = {
        "dense": lambda run: not run.experts,
        "experts": lambda run: run.experts,
        "AMD": lambda run: run.vendor == "amd",
        "Blackwell": lambda run: run.generation == "blackwell",
        **{f"kind {kind}": (lambda run, kind=kind: run.kind == kind) for kind in sorted(shipped)},
        "new sources": lambda run: run.new,
        **{
            f"new, near: {name}": (lambda run, name=name: run.new and run.evidence == name)
            for name in EVIDENCE
        },
        "all": lambda run: True,
    }
    print(f"{len(runs)} steps, {len({run.source for run in runs})} sources; share inside the band")
    print(
        f"{'':26s} {'steps':>6s} {'kernels, links':>15s} {'as shipped':>11s} {'source left out':>16s} "
        f"{'median':>8s} {'p90':>8s}"
    )
    nothing = dict.fromkeys(shipped, 0.0)
    for name, inside in groups.items():
        some = [run for run in runs if inside(run)]
        out = [held for run, held in after if inside(run)]
        if some:
            bare, full = covered(some, nothing, {}), covered(some, shipped, near)
            size = np.abs([run.error for run in some])
            print(
                f"{name:26s} {len(some):6d} {bare:15.1%} {full:11.1%} {np.mean(out):16.1%} "
                f"{np.median(size):8.1%} {np.percentile(size, 90):8.1%}"
            )
    old_runs = [run for run in runs if not run.new] or runs
    errors = {kind: round(error_of(kind, old_runs), 3) for kind in sorted({run.kind for run in old_runs})}
    evidence = evidence_errors([run for run in runs if run.new])
    print("model errors fitted:", errors, "shipped:", shipped)
    print("by evidence:", evidence, "shipped:", near)
    peaks = [entry for entry in entries if entry.memory_error is not None]
    ratio = np.array([-np.log1p(entry.memory_error) for entry in peaks])
    sources = [source_of(entry.case.case_id) for entry in peaks]
    low, middle, high = (weighted_quantile(ratio, sources, share) for share in (0.05, 0.5, 0.95))
    beyond = np.mean(np.exp(ratio) > 1 / (1 - default_headroom()))
    print(
        f"{len(peaks)} peaks of {len(set(sources))} sources: measured over predicted, 5/50/95 % "
        f"{np.exp(low):.3f} {np.exp(middle):.3f} {np.exp(high):.3f}; above the promise of the default "
        f"headroom: {beyond:.1%}"
    )
    pairs = pair_errors(entries)
    off = np.abs(pairs[:, 1] - pairs[:, 0])
    print(f"{len(pairs)} pairs of plans: error of the difference, median {np.median(off):.3f}")
    for least, most in ((0, 0.01), (0.01, 0.03), (0.03, 0.06), (0.06, 0.1), (0.1, 0.5)):
        inside = (np.abs(pairs[:, 0]) >= least) & (np.abs(pairs[:, 0]) < most)
        right = np.mean(np.sign(pairs[inside, 0]) == np.sign(pairs[inside, 1])) if inside.any() else np.nan
        print(
            f"  predicted {least:.0%} to {most:.0%} apart: {inside.sum():4d}, in the right order {right:.0%}"
        )
    if asked.write:
        old = model_errors()
        spread = float((high - low) / 2 / 1.645)
        names = ", ".join(file.name for file in files)
        source = f"benchmarks.bands, {date.today()}: {len(runs)} steps, {len(peaks)} peaks of {names}"
        made = {
            "source": source,
            "step": {**old.step, **errors},
            "memory": old.memory.model_copy(
                update={"bias": round(float(middle), 3), "spread": round(spread, 3)}
            ),
            "difference": old.difference.model_copy(update={"median": round(float(np.median(off)), 3)}),
        }
        if asked.kept_apart:
            near = measured_on([run for run in runs if run.source in of_files])
            made = {"evidence": evidence, "measured": near}
        made = old.model_copy(update=made)
        import yaml

        write_text(ERRORS_FILE, yaml.safe_dump(made.model_dump(), sort_keys=False, width=110))


if __name__ == "__main__":
    main()
