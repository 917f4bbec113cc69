"""Errors on measured servers that are in no fit: rows open while working, and the third kept apart.

    python -m benchmarks.served_parts FOLDER

FOLDER holds files of measured runs (`closed_loop.csv.gz`, `burst_runs.csv.gz`, ...). Rows run as
`meshwright validate --serving` runs them. Only aggregates of the third that is kept apart are printed
(`evidence.training.parts.kept_apart`); flagged rows, and rows with speculation, whose acceptance nobody
states, count apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from evidence.accuracy.errors import Errors
from evidence.command import command
from evidence.serving.ledger import PredictedMetric, ServingLedger, evaluate
from evidence.training.parts import kept_apart

METRICS = {
    "tpot_ms_mean": "TPOT",
    "itl_ms_mean": "ITL",
    "ttft_ms_p50": "TTFT p50",
    "ttft_ms_mean": "TTFT mean",
    "total_tok_s_per_gpu": "tokens/s a GPU",
    "out_tok_s_per_gpu": "tokens out/s a GPU",
    "out_tok_s": "tokens/s",
}


def part_of(entry: PredictedMetric, apart: set[str]) -> str:
    """The part of a row."""
    if entry.case.flagged:
        return "flagged"
    part = "kept apart" if entry.case.case_id in apart else "open"
    question = entry.case.question
    stated = getattr(question, "stated", None)
    speculates = getattr(question, "speculates", False) or bool(stated and stated.speculation)
    return f"{part}, speculating" if speculates else part


def parts(ledger: ServingLedger) -> Errors:
    """Relative errors by file, metric and part; the third is drawn within each file."""
    by_file: dict[str, set[str]] = defaultdict(set)
    for entry in ledger.entries:
        by_file[entry.case.file].add(entry.case.case_id)
    for case_id, _ in ledger.skipped:
        for names in by_file.values():
            names.add(case_id)
    apart = {file: kept_apart(sorted(names)) for file, names in by_file.items()}
    errors = Errors()
    for entry in ledger.entries:
        if entry.metric in METRICS:
            file, part = entry.case.file, part_of(entry, apart[entry.case.file])
            errors.count(entry.relative_error, f"{file:24s} {METRICS[entry.metric]:20s} {part}")
    return errors


@command
def main(paths: Sequence[Path]) -> None:
    """Predict the rows and print errors by part."""
    ledger = evaluate(paths)
    print("\n".join(parts(ledger).lines(order=str)))
    print(f"{len(ledger.skipped)} rows skipped")
