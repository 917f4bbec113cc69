"""Running a sweep: stored points are skipped, the rest runs in parallel, each result is stored at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright import __version__
from meshwright.sweeps.answer import answer
from meshwright.sweeps.definition import Grid, Point
from planner.executors import InParallel
from planner.store import Store, key_of

Row = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """Progress of a sweep."""

    done: int
    """Points answered, from the store or now."""
    stored: int
    """Points among them found in the store."""
    points: int


def run_sweep(
    grid: Grid,
    in_parallel: InParallel,
    workers: int,
    store: Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[Row]:
    """Answer all points of a grid.

    Args:
        grid: of the sweep.
        in_parallel: of an executor.
        workers: processes.
        store: file of results; None keeps nothing.
        progress: called after every result.

    Returns:
        One row per point, in the grid's order: the grid's values, then the figures.

    Raises:
        InputError: the file is not a store of results.
        MeshwrightError: a worker was killed, or the disk is full.
    """
    points = list(grid.points())
    answers: dict[int, Row] = {}
    with Store(store) if store else nullcontext() as kept:
        keys = [key_of(grid.question(point), __version__) for point in points] if kept is not None else []
        if kept is not None:
            answers = {number: row for number, key in enumerate(keys) if (row := kept.get(key)) is not None}
        stored = len(answers)
        if progress:
            progress(Progress(stored, stored, len(points)))
        waiting = _Waiting(points, keys, answers, kept)
        calls = ((grid.sweep.ask, points[n].data, str(grid.folder), grid.where) for n in waiting.numbers())
        for call, row in in_parallel(answer, calls, workers):
            number = waiting.handed[call]
            answers[number] = row
            if kept is not None:
                kept.put(keys[number], __version__, grid.question(points[number]), row)
            if progress:
                progress(Progress(len(answers), stored, len(points)))
    return [{**point.values, **answers[number]} for number, point in enumerate(points)]


class _Waiting:
    """Points to answer; the store is checked again before every point, as another run may share it."""

    def __init__(
        self, points: Sequence[Point], keys: Sequence[str], answers: dict[int, Row], store: Store | None
    ) -> None:
        self.points, self.keys, self.answers, self.store = points, keys, answers, store
        self.handed: list[int] = []

    def numbers(self) -> Iterator[int]:
        """Numbers of the points to answer now."""
        for number in range(len(self.points)):
            if number in self.answers:
                continue
            found = self.store.get(self.keys[number]) if self.store is not None else None
            if found is not None:
                self.answers[number] = found
                continue
            self.handed.append(number)
            yield number
