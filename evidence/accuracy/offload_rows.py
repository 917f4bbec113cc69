"""Published steps with state off the device, and with adapters: ``python -m benchmarks.offload_rows FILE``.

Prints, for the rows of a case file that may be read (``kept_apart``), how many offload something or train
adapters, how many are predicted, and the errors of their steps and memory, with what keeps rows out.
"""

from __future__ import annotations

import csv
import tempfile
from pathlib import Path

from evidence.accuracy.errors import Errors
from evidence.command import command
from evidence.training.parts import kept_apart
from meshwright.validation.ledger import evaluate


def show(name: str, rows: list[dict[str, str]], columns: list[str]) -> None:
    """Predict a group and print its counts and medians."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.csv"
        with file.open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, columns)
            writer.writeheader()
            writer.writerows(rows)
        ledger = evaluate([file])
    errors = Errors(reason for _, reason in ledger.skipped)
    for entry in ledger.entries:
        for what, error in (("steps", entry.relative_error), ("memory", entry.memory_error)):
            if error is not None:
                errors.count(error, what)
    print(f"{name}: {len(rows)} rows that may be read")
    print("\n".join(errors.lines("predicted, %")))


@command
def main(path: Path) -> None:
    """Print both groups of a file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    apart = kept_apart(row["case_id"] for row in rows)
    readable = [row for row in rows if row["case_id"] not in apart]
    groups = {
        "offload": [row for row in readable if row["offload"].strip().lower() not in ("", "none", "0")],
        "adapters": [row for row in readable if "LoRA" in row["source"]],
    }
    for name, group in groups.items():
        show(name, group, list(rows[0]))
