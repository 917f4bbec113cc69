"""Constants that come from whole steps: which rows they reach, and what they do to rows of other sources.

    python -m benchmarks.step_constants RUNS.csv [MORE.csv ...] [--kept-apart NEW.csv]

Each constant is taken away in turn (its value without any step) and the runs are predicted again. Rows that
move by more than a thousandth are reached. The effect is the change of the median error of reached rows,
apart for sources that the constant was chosen on and for all others: it helps where the median is smaller
with the constant, hurts where it is larger, and is untested where no other source is reached. Rows kept
apart are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from evidence.command import command
from evidence.training.chosen_constants import CONSTANTS
from evidence.training.parts import kept_apart, source_of
from meshwright.validation.cases import TrainingCase, read_cases
from meshwright.validation.ledger import PredictedCase, predicted
from meshwright.validation.rows import published_files, read_rows

REACHED = 1e-3
"""Relative change of a predicted step from which on a constant reaches a row."""

EVEN = 0.002
"""Change of a median error that counts as none."""


def open_cases(files: Sequence[Path], divided: Sequence[Path]) -> list[TrainingCase]:
    """Cases with a measured step that nobody keeps apart."""
    silent = {name for path in divided for name in kept_apart(row["case_id"] for row in read_rows(path))}
    cases = [case for path in (*files, *divided) for case in read_cases(path)[0]]
    return [case for case in cases if case.measured_step_s and case.case_id not in silent]


def errors(cases: list[TrainingCase]) -> dict[str, PredictedCase]:
    """Predictions by case; copies of settings, which keep what they computed before."""
    fresh = [replace(case, setting=replace(case.setting)) for case in cases]
    return {entry.case.case_id: entry for entry in predicted(fresh)}


def line(name, value, sources, rows, base, other) -> str:
    """One row of the table."""
    reached = [
        key
        for key in base
        if key in other and abs(other[key].predicted_step_s / base[key].predicted_step_s - 1) > REACHED
    ]
    cells = [name, value, ", ".join(sources), rows, str(len(reached))]
    for inside in (True, False):
        keys = [key for key in reached if (source_of(key) in sources) == inside]
        if not keys:
            cells.append("" if inside else "untested")
            continue
        now, gone = (np.median([abs(e[key].relative_error) for key in keys]) for e in (base, other))
        word = "even" if abs(now - gone) < EVEN else "helps" if now < gone else "hurts"
        cells.append(f"{len(keys)}: {now:.1%}, without {gone:.1%}" + ("" if inside else f": {word}"))
    return "| " + " | ".join(cells) + " |"


@command
def main(files: Sequence[Path] = (), *, kept_apart: Sequence[Path] = ()) -> None:
    """Print the table as Markdown."""
    cases = open_cases(files or ([] if kept_apart else published_files()), kept_apart)
    base = errors(cases)
    print("| constant | value | chosen on | rows | reaches | own sources, median | other sources, median |")
    print("|---|---|---|---|---|---|---|")
    for each in CONSTANTS:
        with each.taken_away():
            changed = [(case, each.without(case)) for case in cases]
            reached = [new for old, new in changed if new is not old or each.patched]
            other = errors(reached)
        print(line(each.name, each.value, each.sources, each.rows, base, other))
