"""Predictions of every row of tables of published runs, stored and compared: a refactor moves none.

    python -m benchmarks.row_predictions --write before.json [TABLE.csv ...]
    python -m benchmarks.row_predictions --check before.json [TABLE.csv ...]
    python -m benchmarks.row_predictions --lost REF [TABLE.csv ...]

Without tables, those that Meshwright ships. ``--lost`` counts the rows that another version predicts and this
one skips, with the reasons.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.against import checkout
from benchmarks.start import run
from meshwright.validation.cases import read_cases
from meshwright.validation.rows import published_files
from planner.prediction import simulate_plan

SAME = 1e-9
"""Largest relative change of an unmoved prediction."""
SHOWN = 40


def predictions(files: Sequence[Path]) -> dict[str, list[float] | str]:
    """Step seconds and peak bytes of each row, or why it was skipped, by table and row."""
    found: dict[str, list[float] | str] = {}
    for path in files:
        cases, skipped = read_cases(path)
        found |= {f"{path.name}: {name}": reason for name, reason in skipped}
        for case in cases:
            try:
                made = simulate_plan(case.setting, case.plan).prediction
                found[f"{path.name}: {case.case_id}"] = [float(made.step.time[0]), float(made.memory.peak[0])]
            except Exception as error:
                found[f"{path.name}: {case.case_id}"] = f"failed: {error}"
    return found


def moves(before: dict[str, list[float] | str], after: dict[str, list[float] | str]) -> list[str]:
    """Lines about rows whose prediction changed, the largest change first."""
    lines = []
    for name in sorted({*before, *after}):
        old, new = before.get(name, "absent"), after.get(name, "absent")
        if isinstance(old, str) or isinstance(new, str):
            if isinstance(old, str) is not isinstance(new, str):
                lines.append((float("inf"), f"{name}: {old} -> {new}"))
            continue
        change = max(abs(b / a - 1) for a, b in zip(old, new, strict=True))
        if change > SAME:
            step, peak = (b / a - 1 for a, b in zip(old, new, strict=True))
            lines.append((change, f"{name}: step {step:+.3%}, peak {peak:+.3%}"))
    return [line for _, line in sorted(lines, reverse=True)]


def lost(before: dict[str, list[float] | str], after: dict[str, list[float] | str]) -> dict[str, str]:
    """Rows that have a prediction before and none after, and why."""
    gone = {name: after.get(name, "absent") for name, old in before.items() if not isinstance(old, str)}
    return {name: reason for name, reason in gone.items() if isinstance(reason, str)}


def predictions_of(ref: str, files: Sequence[Path]) -> dict[str, list[float] | str]:
    """Predictions of another version of this repository."""
    with checkout(ref) as other:
        written = other / "predictions.json"
        tables = [str(path.resolve()) for path in files]
        run(("-m", "benchmarks.row_predictions", "--write", str(written), *tables), other)
        return json.loads(written.read_text())


def main() -> None:
    """Write or compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--lost", metavar="REF")
    parser.add_argument("files", nargs="*", type=Path)
    asked = parser.parse_args()
    found = predictions(asked.files or published_files())
    if asked.write:
        asked.write.write_text(json.dumps(found, indent=0))
    if asked.lost:
        gone = lost(predictions_of(asked.lost, asked.files), found)
        print(f"{len(found)} rows; {len(gone)} that {asked.lost} predicts are skipped")
        for name, reason in gone.items():
            print(f"  {name}: {reason}")
    if asked.check:
        lines = moves(json.loads(asked.check.read_text()), found)
        print(f"{len(found)} rows, {len(lines)} moved by more than {SAME:g}")
        for line in lines[:SHOWN]:
            print(f"  {line}")


if __name__ == "__main__":
    main()
