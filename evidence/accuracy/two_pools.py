"""Errors of two pools, one that prefills and one that decodes, on measured servers, by group of rows.

    python -m benchmarks.two_pools CLOSED_LOOP.csv.gz ... [--by COLUMN ...] [--fewest N]

Rows without a flag, each configuration once, as `meshwright validate --serving` predicts them (steady states
of both pools). A line has the rows of a group and, by metric, median, 90th percentile and bias of their
relative errors in %. The first lines pool all rows, and those without drafts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from evidence.accuracy.served_groups import load_of
from evidence.command import command
from evidence.fits.left_out_errors import figures_of
from evidence.serving.case import ServingCase
from evidence.serving.ledger import PredictedMetric, evaluate

METRICS = {
    "total_tok_s_per_gpu": "tokens/s a GPU",
    "tpot_ms_mean": "TPOT mean",
    "ttft_ms_p50": "TTFT p50",
    "ttft_ms_mean": "TTFT mean",
}
COLUMNS: dict[str, Callable[[ServingCase], str]] = {
    "engine": lambda case: case.engine,
    "model": lambda case: case.question.serving.model.name,
    "gpu": lambda case: case.gpu,
    "format": lambda case: case.question.serving.pool.stored,
    "drafts": lambda case: "drafts" if case.question.speculates else "none",
    "load": load_of,
}


def two_pools(entries: Iterable[PredictedMetric]) -> list[PredictedMetric]:
    """Entries of unflagged rows of two pools; a configuration that was measured again counts once."""
    metrics: dict[tuple[str, str], PredictedMetric] = {}
    for entry in entries:
        case = entry.case
        if entry.metric in METRICS and getattr(case.question, "prefill", None) and not case.flagged:
            metrics.setdefault((case.group or case.case_id, entry.metric), entry)
    return list(metrics.values())


def lines(entries: list[PredictedMetric], by: Sequence[str], fewest: int) -> Iterator[str]:
    """Lines of the table."""
    yield "| " + " | ".join(["rows of", "number", *METRICS.values()]) + " |"
    yield "|" + "---|" * (2 + len(METRICS))
    yield _line("all", entries)
    yield _line("without drafts", [entry for entry in entries if not entry.case.question.speculates])
    groups: dict[str, list[PredictedMetric]] = defaultdict(list)
    for entry in entries:
        groups[", ".join(COLUMNS[name](entry.case) for name in by)].append(entry)
    for name, same in sorted(groups.items()):
        if len({entry.case.case_id for entry in same}) >= fewest:
            yield _line(name, same)


def _line(name: str, entries: list[PredictedMetric]) -> str:
    """Errors of a group by metric."""
    cells = []
    for metric in METRICS:
        errors = np.array([entry.relative_error for entry in entries if entry.metric == metric])
        cells.append(figures_of(errors).partition(" (n")[0] if len(errors) else "")
    count = len({entry.case.case_id for entry in entries})
    return f"| {name} | {count} | " + " | ".join(cells) + " |"


@command
def main(
    files: Sequence[Path],
    *,
    by: Annotated[Sequence[str], sorted(COLUMNS)] = ("engine", "gpu", "format"),
    fewest: Annotated[int, "least number of rows of a line"] = 1,
) -> None:
    """Predict and print."""
    ledger = evaluate(files, only=lambda case: getattr(case.question, "prefill", None) is not None)
    print("\n".join(lines(two_pools(ledger.entries), by, fewest)))
