"""Errors on measured servers that are in no fit: rows open while working, and the third kept apart.

    python -m benchmarks.served_parts FOLDER

FOLDER holds files of measured runs (`closed_loop.csv.gz`, `burst_runs.csv.gz`, ...). Rows run as
`meshwright validate --serving` runs them. Only aggregates of the third that is kept apart are printed
(`evidence.training.parts.kept_apart`); flagged rows, and rows with speculation, whose acceptance nobody
states, count apart.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

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


def parts(ledger: ServingLedger) -> dict[tuple[str, str, str], list[float]]:
    """Relative errors by file, metric and part; the third is drawn within each file."""
    by_file: dict[str, set[str]] = defaultdict(set)
    for entry in ledger.entries:
        by_file[entry.case.file].add(entry.case.case_id)
    for case_id, _ in ledger.skipped:
        for names in by_file.values():
            names.add(case_id)
    apart = {file: kept_apart(sorted(names)) for file, names in by_file.items()}
    found: dict[tuple[str, str, str], list[float]] = defaultdict(list)
    for entry in ledger.entries:
        if entry.metric in METRICS:
            part = part_of(entry, apart[entry.case.file])
            found[entry.case.file, METRICS[entry.metric], part].append(entry.relative_error)
    return found


def main() -> None:
    """Predict the rows and print errors by part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("paths", type=Path, nargs="+")
    ledger = evaluate(parser.parse_args().paths)
    for (file, metric, part), errors in sorted(parts(ledger).items()):
        size = 100 * np.abs(errors)
        figures = f"{np.median(size):6.1f} / {np.percentile(size, 90):6.1f} / {100 * np.median(errors):+6.1f}"
        print(f"{file:24s} {metric:20s} {part:24s} {figures}  (n {len(errors)})")
    print(f"{len(ledger.skipped)} rows skipped")


if __name__ == "__main__":
    main()
