"""Published steps with state off the device, and with adapters: ``python -m benchmarks.offload_rows FILE``.

Prints, for the rows of a case file that may be read (``kept_apart``), how many offload something or train
adapters, how many are predicted, and the median errors of their steps and memory, with what keeps rows out.
"""

from __future__ import annotations

import csv
import sys
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

from evidence.training.parts import kept_apart
from meshwright.validation.ledger import evaluate


def main(path: str) -> None:
    """Print both groups of a file."""
    with Path(path).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    apart = kept_apart(row["case_id"] for row in rows)
    readable = [row for row in rows if row["case_id"] not in apart]
    groups = {
        "offload": [row for row in readable if row["offload"].strip().lower() not in ("", "none", "0")],
        "adapters": [row for row in readable if "LoRA" in row["source"]],
    }
    for name, chosen in groups.items():
        show(name, chosen, list(rows[0]))


def show(name: str, rows: list[dict[str, str]], columns: list[str]) -> None:
    """Predict a group and print its counts and medians."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"{name}.csv"
        with file.open("w", encoding="utf-8", newline="") as out:
            writer = csv.DictWriter(out, columns)
            writer.writeheader()
            writer.writerows(rows)
        ledger = evaluate([file])
    steps = [each.relative_error for each in ledger.entries if each.relative_error is not None]
    memory = [each.memory_error for each in ledger.entries if each.memory_error is not None]
    print(f"{name}: {len(rows)} rows that may be read, {len(steps)} steps predicted" + median(steps))
    print(f"  memory: {len(memory)} rows" + median(memory))
    for reason, count in Counter(reason for _, reason in ledger.skipped).most_common():
        print(f"  {count} skipped: {reason}")


def median(errors: list[float]) -> str:
    """Median, p90 and bias for people."""
    if not errors:
        return ""
    size = np.abs(errors)
    return f", median {np.median(size):.1%}, p90 {np.quantile(size, 0.9):.1%}, bias {np.median(errors):+.1%}"


if __name__ == "__main__":
    main(sys.argv[1])
