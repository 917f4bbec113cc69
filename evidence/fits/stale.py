"""Whether tables derived from predictions are those of the code: levers' gains, and errors of measured runs.

    python -m benchmarks.stale

Every run that ships is predicted again and compared with its line in ``lever_domains.csv`` and
``measured_runs.csv``; open rows that do not ship are derived by the same commands. A line that is another one
now says that physics moved and its table did not.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from evidence.command import command
from evidence.fits.lever_domains import levers
from meshwright.validation.cases import TrainingCase, read_cases
from meshwright.validation.ledger import predicted
from meshwright.validation.rows import published_files
from planner.training.measured_runs import RUNS_FILE
from simulator.training.domains import DOMAINS_FILE

LAST_DIGIT = 0.0011
"""Difference of two figures of three decimals that rounding explains."""


def shipped_cases() -> list[TrainingCase]:
    """The measured cases that ship with its framework and micro batch stated by its source."""
    cases = [case for path in published_files() for case in read_cases(path)[0]]
    return [c for c in cases if c.measured_step_s and not {"framework", "micro batch"} & set(c.assumed)]


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def stale_gains(cases: Iterable[TrainingCase]) -> Iterator[str]:
    """Runs whose gain of a lever is not the one in the table of domains."""
    written = {
        (row["lever"], row["value"], row["case"]): float(row["gain"])
        for row in _lines(DOMAINS_FILE)
        if row["of"] == "prediction"
    }
    for case in cases:
        for row in levers(case):
            before = written.get((row["lever"], row["value"], row["case"]))
            if before is not None and abs(before - float(row["gain"])) > LAST_DIGIT:
                lever = f"{row['lever']}={row['value']}"
                yield f"{row['case']}: {lever} gains {row['gain']}, written {before:.3f}"


def stale_errors(cases: Iterable[TrainingCase]) -> Iterator[str]:
    """Runs whose prediction is off by another share than the table of measured runs says."""
    written = {row["case"]: [float(error) for error in row["errors"].split()] for row in _lines(RUNS_FILE)}
    for entry in predicted([case for case in cases if case.case_id in written]):
        error = (entry.case.measured_step_s or 0.0) / entry.predicted_step_s - 1
        errors = written[entry.case.case_id]
        if errors and min(abs(error - written_error) for written_error in errors) > LAST_DIGIT:
            yield f"{entry.case.case_id}: measured over predicted, less 1, is {error:.3f}, written {errors}"


@command
def main() -> None:
    """Print the lines that are stale; exit 1 if any is."""
    cases = shipped_cases()
    stale = [*stale_gains(cases), *stale_errors(cases)]
    for line in stale:
        print(line)
    print(f"{len(cases)} runs, {len(stale)} stale lines")
    sys.exit(1 if stale else 0)
