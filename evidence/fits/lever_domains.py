"""Write the runs that levers were measured in, with their drivers (simulator/training/lever_domains.csv).

    python -m benchmarks.lever_domains RUNS.csv [MORE.csv ...] [--write]

One line for each lever, run and set of drivers. A run counts if it chose a value that its release does not
have by itself. Its gain is the logarithm of a layer's predicted seconds without the lever over those with it.
The rows that ship are always read; rows whose framework or micro batch is assumed are left out.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from core.files import write_text
from evidence.training.parts import named, source_of, sources
from meshwright.validation.cases import TrainingCase, read_cases
from meshwright.validation.rows import published_files
from simulator.plan import Plans
from simulator.training.domains import DOMAINS_FILE, DRIVERS, DomainRun, drivers, kind_of, used
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
            "gain": f"{float(gained.get(lever, [0.0])[0]):.3f}",
        }


def lines(files: list[Path]) -> list[dict[str, Any]]:
    """Lines of the file; runs that differ in nothing but the case once, with the largest gain."""
    domains: dict[tuple[Any, ...], dict[str, Any]] = {}
    for path in files:
        undecidable = named(path, sources().no_figure)
        for case in read_cases(path)[0]:
            if not case.measured_step_s or {"framework", "micro batch"} & set(case.assumed):
                continue
            if case.case_id in undecidable:
                continue
            for line in levers(case):
                key = tuple(value for name, value in line.items() if name not in ("case", "gain"))
                if key not in domains or float(line["gain"]) > float(domains[key]["gain"]):
                    domains[key] = line
    return [domains[key] for key in sorted(domains)]


def main() -> None:
    """Print the domains; write the file if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--write", action="store_true", help=f"write {DOMAINS_FILE.name}")
    options = parser.parse_args()
    rows = lines([*options.files, *published_files()])
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
    if options.write:
        text = io.StringIO()
        writer = csv.DictWriter(text, list(DomainRun.model_fields), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_text(DOMAINS_FILE, text.getvalue())


if __name__ == "__main__":
    main()
