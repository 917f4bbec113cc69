"""Write the runs that levers were measured in, with their drivers (simulator/training/lever_domains.csv).

    python -m benchmarks.lever_domains RUNS.csv [MORE.csv ...] [--write]

One line for each lever, run and set of drivers. A run counts if it chose a value that its release does not
have by itself. Its gain is the logarithm of a layer's predicted seconds without the lever over those with it;
where rows of one pull request differ in the overlap alone, it is that of their measured steps. The rows that
ship are always read; rows whose framework or micro batch is assumed are left out.
"""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from core.files import write_text
from evidence.command import command
from evidence.training.lever_effects import effects
from evidence.training.parts import named, source_of, sources
from meshwright.validation.cases import TrainingCase, read_cases
from meshwright.validation.ledger import predicted
from meshwright.validation.rows import published_files, read_rows
from simulator.plan import Plans
from simulator.training.domains import (
    DOMAINS_FILE,
    DRIVERS,
    OVERLAP,
    DomainRun,
    drivers,
    kind_of,
    reaches,
    used,
)
from simulator.training.expected import gains


def levers(case: TrainingCase) -> Iterator[dict[str, Any]]:
    """The levers of a run that have a domain, with its drivers."""
    plans = Plans.of(case.plan)
    setting = case.setting.of(case.plan)
    if setting.model.moe is None:
        return
    at = dict(zip(DRIVERS, drivers(setting, plans)[0], strict=True))
    gained = gains(setting, plans)
    for lever, value in used(setting, case.plan.overlap_expert and case.plan.expert > 1).items():
        yield {
            "lever": lever,
            "value": value,
            "case": case.case_id,
            "source": sources().same_as.get(source_of(case.case_id), source_of(case.case_id)),
            "code": setting.framework.name,
            "device": setting.cluster.device.name,
            "generation": setting.cluster.device.generation.name,
            "kind": kind_of(setting),
            **{name: f"{size:g}" for name, size in at.items()},
            "reach": str(reaches(setting, plans, lever)[0]),
            "gain": f"{float(gained.get(lever, [0.0])[0]):.3f}",
            "of": "prediction",
        }


def measured_gains(path: Path, cases: Sequence[TrainingCase]) -> dict[str, float]:
    """Logarithms of steps without the overlap over those with it, by the case that has it."""
    pulls = defaultdict(list)
    address = {row["case_id"]: row.get("url_or_repo", "") for row in read_rows(path)}
    for case in cases:
        if "/pull/" in address[case.case_id]:
            pulls[address[case.case_id]].append(case)
    gains = {}
    for pull in pulls.values():
        for effect in effects(predicted(pull)):
            if effect.field == OVERLAP:
                on = effect.after == "True"
                gains[effect.case_id if on else effect.slow_id] = (1 if on else -1) * np.log1p(
                    effect.measured
                )
    return gains


def lines(files: list[Path]) -> list[dict[str, Any]]:
    """Lines of the file; runs that differ in nothing but the case once."""
    domains: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in files:
        undecidable = named(path, sources().no_figure)
        cases = [
            case
            for case in read_cases(path)[0]
            if case.measured_step_s and not {"framework", "micro batch"} & set(case.assumed)
        ]
        measured = measured_gains(path, cases)
        for case in cases:
            for line in levers(case) if case.case_id not in undecidable else ():
                if line["lever"] == OVERLAP and case.case_id in measured:
                    line |= {"gain": f"{measured[case.case_id]:.3f}", "of": "pair"}
                key = tuple(value for name, value in line.items() if name not in ("case", "gain", "of"))
                if key not in domains or _rank(line) > _rank(domains[key]):
                    domains[key] = line
    return [domains[key] for key in sorted(domains)]


def _rank(line: dict[str, Any]) -> tuple[bool, float]:
    """Order of runs that are alike: a measured gain before a predicted one, then the larger gain."""
    return line["of"] == "pair", float(line["gain"])


@command
def main(files: Sequence[Path] = (), *, write: Annotated[bool, f"write {DOMAINS_FILE.name}"] = False) -> None:
    """Print the domains; write the file if asked."""
    rows = lines([*files, *published_files()])
    for lever, value in dict.fromkeys((row["lever"], row["value"]) for row in rows):
        runs = [row for row in rows if (row["lever"], row["value"]) == (lever, value)]
        spans = [
            f"{name} {min(sizes):g} to {max(sizes):g}"
            for name in DRIVERS
            for sizes in [np.array([float(row[name]) for row in runs])]
        ]
        gains = [float(row["gain"]) for row in runs]
        sources = len({row["source"] for row in runs})
        print(
            f"{lever}={value}: {len(runs)} runs of {sources} sources; {', '.join(spans)}; "
            f"gain {np.median(gains):.2f} in the median, at most {max(gains):.2f}"
        )
    if write:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(DomainRun.model_fields), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(DOMAINS_FILE, text.getvalue())
