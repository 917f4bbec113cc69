"""Running a sweep: one row per point of its grid, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import MeshwrightError
from meshwright.sweeps.definition import SweepGrid
from planner.execution import Execution
from planner.store import file_digests

Row = dict[str, Any]


@dataclass(frozen=True)
class Progress:
    """Progress of a sweep."""

    done: int
    """Points answered, from the store or now."""
    stored: int
    """Points among them found in the store."""
    points: int


def answer(ask: str, data: Mapping[str, Any], folder: str, where: str) -> dict[str, Any]:
    """Answer one point.

    Args:
        ask: plan or simulate.
        data: the scenario.
        folder: base of its relative paths.
        where: name of the source in errors.

    Returns:
        Figures by name; ``problem`` alone where the point has no answer.
    """
    from meshwright.jobs import job_of

    try:
        question = data, where, Path(folder)
        return dict(job_of(*question).row(ask, question))
    except MeshwrightError as error:
        return {"problem": " ".join(str(error).split())}


def question(ask: str, data: Mapping[str, Any], folder: str, where: str) -> dict[str, Any]:
    """Inputs of a point's answer: the scenario, and the files that it names; same arguments as ``answer``."""
    return {"ask": ask, "scenario": data, "files": file_digests(data, Path(folder))}


def run_sweep(
    grid: SweepGrid, execution: Execution, progress: Callable[[Progress], None] | None = None
) -> list[Row]:
    """Answer all points of a grid.

    Args:
        grid: of the sweep.
        execution: where points are computed, and the store of their results.
        progress: called after every result.

    Returns:
        One row per point, in the grid's order: the grid's values, then the figures.

    Raises:
        InputError: the file is not a store of results, or no Ray cluster answers.
        MeshwrightError: a worker was killed, or the disk is full.
    """
    points = list(grid.points())
    calls = [(grid.sweep.ask, point.data, str(grid.folder), grid.where) for point in points]
    answers: dict[int, Row] = {}
    stored = 0
    for finished in execution.run(answer, calls, question):
        answers[finished.number] = finished.result
        stored += finished.stored
        if progress:
            progress(Progress(len(answers), stored, len(points)))
    return [{**point.values, **answers[number]} for number, point in enumerate(points)]
