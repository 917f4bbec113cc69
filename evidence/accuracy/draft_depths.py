"""Errors of servers that draft tokens, and the number of drafts that is best at each load.

    python -m benchmarks.draft_depths FILE ...

FILE holds closed loops with the server's command line (`eagle3.csv.gz`); rows without drafts are their
baseline. Rows run as `meshwright validate --serving` runs them. A load is a number of clients. Its best
number of drafts is that of the least TPOT among those that were measured there; the number that is predicted
best is off by its distance to it in this list.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from evidence.accuracy.errors import Errors
from evidence.command import command
from evidence.serving.ledger import PredictedMetric, evaluate

TPOT = "tpot_ms_mean"
Loads = dict[float, dict[int, tuple[float, float]]]
"""Predicted and measured TPOT by clients and drafts."""


def loads(entries: list[PredictedMetric]) -> Loads:
    """TPOT of rows by load."""
    by_load: Loads = defaultdict(dict)
    for entry in entries:
        if entry.metric == TPOT and not entry.case.flagged:
            question = entry.case.question
            drafts = dict(question.stated.speculation).get("tokens", 0)
            by_load[question.concurrency][drafts] = entry.predicted, entry.measured
    return dict(sorted(by_load.items()))


def best_apart(row: dict[int, tuple[float, float]]) -> tuple[int, int, int]:
    """Numbers of drafts that are predicted and measured best, and how far they lie apart in the list."""
    depths = sorted(row)
    predicted, measured = (min(depths, key=lambda depth: row[depth][part]) for part in (0, 1))
    return predicted, measured, abs(depths.index(predicted) - depths.index(measured))


@command
def main(file: Sequence[Path]) -> None:
    """Predict the rows and print."""
    ledger = evaluate(file)
    by_load = loads(ledger.entries)
    errors = Errors()
    for clients, row in by_load.items():
        cells = []
        for drafts, (predicted, measured) in sorted(row.items()):
            error = errors.add(predicted, measured, f"TPOT with{'' if drafts else 'out'} drafts")
            cells.append(f"{drafts} drafts {predicted:.2f} for {measured:.2f} ms ({100 * error:+.0f} %)")
        if len(row) > 2:
            cells.append("predicted best {}, measured {}, {} apart".format(*best_apart(row)))
        print(f"{clients:4.0f} clients: {'; '.join(cells)}")
    print("\n".join(errors.lines()))
    print(f"{len(ledger.skipped)} rows skipped")
