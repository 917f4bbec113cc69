"""Errors of the presets that ship on measured servers, by groups of rows, beside those of kernels alone.

    python -m benchmarks.served_groups FOLDER ... [--by COLUMN ...] [--fewest N]

FOLDER holds published runs (`closed_loop.csv.gz`, `energy.csv.gz`, ...), all of them open. Rows are
predicted by steady states, as `benchmarks.fit_engines` predicts them. Kernels alone have no time a layer. A
line has the rows of a group, and median, 90th percentile and bias of their relative errors in %, by metric.
The first table pools all rows. The last lines count the rows that the readers skip, by reason.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from evidence.command import command
from evidence.fits import fit_engines
from evidence.fits.left_out_errors import figures_of
from evidence.fits.left_out_models import kernels_alone, scaled
from evidence.fits.served_rows import FILES, FIRST, RATE, REST, Rows, group_of
from evidence.serving import ledger
from evidence.serving.case import ServingCase

KINDS = REST, FIRST, RATE
LOADS = 1, 16, 64, 512, 1023
"""Most clients (or sequences of a batch) of each range of loads but the last."""


def load_of(case: ServingCase) -> str:
    """The range of clients or sequences of a row; empty where a rate is stated."""
    question = case.question
    clients = getattr(question, "concurrency", None) or getattr(question, "batch", None)
    if clients is None:
        return ""
    low = 1
    for largest in LOADS:
        if clients <= largest:
            return f"{low}-{largest}" if largest > low else str(largest)
        low = largest + 1
    return f"{low}-"


COLUMNS: dict[str, Callable[[ServingCase, Rows], str]] = {
    "engine": lambda case, rows: case.question.serving.engine.engine,
    "preset": lambda case, rows: case.engine,
    "layers": lambda case, rows: group_of(rows.setup).layers,
    "format": lambda case, rows: group_of(rows.setup).format,
    "model": lambda case, rows: rows.setup.model.name,
    "gpu": lambda case, rows: case.gpu,
    "load": lambda case, rows: load_of(case),
    "source": lambda case, rows: rows.source,
    "tensor": lambda case, rows: str(rows.setup.pool.tensor),
}
Errors = dict[tuple[str, ...], dict[str, list[tuple[float, float]]]]
"""Errors as shipped and of kernels alone, by group and kind of metric."""


def grouped(rows: list[Rows], errors: list[tuple[np.ndarray, np.ndarray]], by: Sequence[str]) -> Errors:
    """Errors by group."""
    groups: Errors = defaultdict(lambda: defaultdict(list))
    for same, (shipped, alone) in zip(rows, errors, strict=True):
        for case, *pair in zip(same.cases, shipped, alone, strict=True):
            groups[tuple(COLUMNS[name](case, same) for name in by)][same.kind].append((pair[0], pair[1]))
    return groups


def lines(groups: Errors, by: Sequence[str], fewest: int) -> Iterator[str]:
    """Lines of the table."""
    heads = [f"{kind}, shipped | {kind}, alone" for kind in KINDS]
    yield "| " + " | ".join([*by, "rows", *heads]) + " |"
    yield "|" + "---|" * (len(by) + 1 + 2 * len(KINDS))
    for name, kinds in sorted(groups.items()):
        count = max(len(kinds[kind]) for kind in KINDS)
        if count >= fewest:
            cells = [_cell(np.array(kinds[kind])) for kind in KINDS]
            yield "| " + " | ".join([*name, str(count), *cells]) + " |"


def _cell(pairs: np.ndarray) -> str:
    """Figures as shipped and of kernels alone."""
    if not len(pairs):
        return " | "
    return " | ".join(figures_of(column).partition(" (n")[0] for column in pairs.T)


def skipped(folders: Sequence[Path]) -> Counter[str]:
    """Numbers of skipped rows by reason; names and figures within a reason count as one."""
    book = ledger.ServingLedger()
    questions: dict[str, list[Any]] = defaultdict(list)
    for folder in folders:
        for name in FILES:
            if (folder / name).exists():
                ledger._read(folder / name, True, questions, book)
    reasons = Counter(re.sub(r"'[^']*'", "...", reason).partition(";")[0] for _, reason in book.skipped)
    reasons["read"] = sum(len(cases) for cases in questions.values())
    return reasons


@command
def main(
    folder: Sequence[Path],
    *,
    by: Annotated[Sequence[str], sorted(COLUMNS)] = ("engine", "layers", "format", "gpu"),
    fewest: Annotated[int, "least number of rows of a line"] = 5,
) -> None:
    """Predict and print."""
    groups = fit_engines.fitted_rows(folder)
    fit_engines.fresh_tables()
    rows = [entry for same in groups.values() for entry in same if entry.kind in KINDS]
    shipped = {group: fit_engines.shipped(group) for group in groups}
    errors = []
    for times in (shipped, scaled(shipped, kernels_alone)):
        for group, same in groups.items():
            fit_engines.assign((entry.setup for entry in same), times[group])
        errors.append([np.expm1(entry.errors()) for entry in rows])
    pairs = list(zip(*errors, strict=True))
    for columns in ([], by):
        print("\n".join(lines(grouped(rows, pairs, columns), columns, fewest)) + "\n")
    for reason, count in skipped(folder).most_common():
        print(f"{count:6d} {reason}")
