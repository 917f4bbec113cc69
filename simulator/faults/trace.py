"""Traces of faults: intervals in which a node was down, read from CSV files.

Columns: ``node``, ``start_day``, ``end_day``, and optionally ``level``, ``class``, ``description``. A row
without an end counts as a start and not for availability; a row without a start counts for neither.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError, UnknownNameError
from core.parsing import read_text

FOLDER = Path(__file__).parent / "traces"
DAY = 86400.0


@dataclass(frozen=True, eq=False)
class FaultTrace:
    """Intervals sorted by start; times in seconds, NaN where the trace has none.

    Attributes:
        node: number of the node.
        start, end: of each interval.
        cause: its class.
        nodes: nodes of the traced cluster.
        duration: of the trace.
    """

    node: NDArray[np.int64]
    start: NDArray[np.float64]
    end: NDArray[np.float64]
    cause: tuple[str, ...]
    nodes: int
    duration: float

    @property
    def starts(self) -> int:
        """Intervals whose start is known."""
        return int(np.isfinite(self.start).sum())

    @property
    def paired(self) -> NDArray[np.bool_]:
        """Intervals with start and end."""
        return np.isfinite(self.start) & np.isfinite(self.end)

    @property
    def left_out(self) -> tuple[int, int]:
        """Rows without an end, and rows without a start."""
        return int(np.isnan(self.end).sum()), int(np.isnan(self.start).sum())

    @property
    def per_1000_node_days(self) -> float:
        """Starts in a thousand days of a node."""
        return self.starts / (self.nodes * self.duration / DAY) * 1000

    @property
    def availability(self) -> float:
        """Share of node time outside all paired intervals, overlapping ones of a node joined."""
        down = sum(end - start for _, start, end in self.joined())
        return 1 - down / (self.nodes * self.duration)

    def joined(self) -> list[tuple[int, float, float]]:
        """Paired intervals by node and start, overlapping ones of a node joined."""
        intervals: list[tuple[int, float, float]] = []
        order = np.lexsort((self.start, self.node))
        for index in order[self.paired[order]]:
            node, start, end = int(self.node[index]), float(self.start[index]), float(self.end[index])
            if intervals and intervals[-1][0] == node and start <= intervals[-1][2]:
                intervals[-1] = (node, intervals[-1][1], max(end, intervals[-1][2]))
            else:
                intervals.append((node, start, end))
        return intervals


def read_trace(reference: str, nodes: int, duration_s: float, folder: Path, where: str) -> FaultTrace:
    """Read a trace: the name of a shipped one, or a CSV file.

    Args:
        reference: name or path; a path is relative to ``folder``.
        nodes: nodes of the traced cluster.
        duration_s: length of the trace.
        folder: base of relative paths.
        where: name of the key in errors.

    Raises:
        InputError: no such trace, a missing column, a wrong number, an interval that ends before it starts, a
            node that the cluster lacks.
    """
    shipped = FOLDER / f"{reference}.csv"
    path = shipped if shipped.is_file() else folder / reference
    if not path.is_file():
        if "/" not in reference and "." not in reference:
            raise UnknownNameError("trace", reference, [each.stem for each in FOLDER.glob("*.csv")], where)
        raise InputError(f"no such trace: {reference!r}", where)
    rows = list(csv.DictReader(io.StringIO(read_text(path))))
    for column in ("node", "start_day", "end_day"):
        if not rows or column not in rows[0]:
            raise InputError(
                f"column {column!r} is missing; a trace has node, start_day, end_day", f"{where}: {path}"
            )
    read = [_row(row, f"{where}: {path}: line {number}", nodes) for number, row in enumerate(rows, start=2)]
    read.sort(key=lambda row: (np.nan_to_num(row[1], nan=np.inf), row[0]))
    node, start, end, cause = zip(*read, strict=True)
    return FaultTrace(np.array(node), np.array(start) * DAY, np.array(end) * DAY, cause, nodes, duration_s)


def _row(row: dict[str, str], where: str, nodes: int) -> tuple[int, float, float, str]:
    """Node, start and end in days (NaN where absent), and class of a row."""
    text = row["node"] or ""
    if not text.strip().isdigit() or int(text) >= nodes:
        raise InputError(f"node must be 0 to {nodes - 1}, found {text!r}", where)
    days = []
    for column in ("start_day", "end_day"):
        written = (row[column] or "").strip()
        try:
            days.append(float(written) if written else float("nan"))
        except ValueError:
            raise InputError(
                f"{column} must be a number of days or empty, found {written!r}", where
            ) from None
    start, end = days
    if end < start:
        raise InputError(f"the interval ends before it starts: {start:g} to {end:g} days", where)
    return int(text), start, end, row.get("class") or "unknown"
