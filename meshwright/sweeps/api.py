"""The Python API of sweeps: one question for every point of a grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.loading import read_mapping
from meshwright.questions.references import Reference
from meshwright.result_base import Result
from meshwright.sweeps.definition import SweepGrid, sweep_path
from meshwright.sweeps.run import Progress, Row, run_sweep
from meshwright.sweeps.tables import write_rows
from planner.execution import Execution

if TYPE_CHECKING:
    from meshwright.pages.page import Page

__all__ = ["SweepResult", "sweep"]


@dataclass(frozen=True, repr=False)
class SweepResult(Result):
    """Answers of a sweep.

    Attributes:
        title: of the sweep.
        grid: key paths of the grid.
        points: one row per point, in the grid's order: the grid's values, then the figures, or ``problem``.
    """

    title: str
    points: Sequence[Row]
    grid: Sequence[str] = ()

    def _tables(self) -> Sequence[Any]:
        from meshwright.reports.sweep_points import point_tables

        return point_tables(self.points, self.grid)

    def _rows(self) -> Sequence[Mapping[str, Any]]:
        return self.points

    def page(self) -> Page:
        """The page of the points."""
        from meshwright.pages.answers import sweep_page

        return sweep_page(self.title, self.points, self.grid)

    def to_dict(self) -> dict[str, Any]:
        """Return the mapping that ``sweep --json`` prints."""
        return {"title": self.title, "points": list(self.points)}

    def write(self, path: str | Path) -> None:
        """Write the table as CSV or Parquet.

        Raises:
            InputError: an unknown extension, pyarrow is missing, or the file cannot be written.
        """
        write_rows(self.points, Path(path))


def sweep(
    definition: Reference | None = None,
    *,
    scenario: Reference | None = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    ask: str | None = None,
    execution: Execution | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> SweepResult:
    """Answer a question for every point of a grid.

    Args:
        definition: file, shipped name or mapping of a sweep; the other arguments replace its keys.
        scenario: what all points share: shipped name, path or mapping.
        grid: lists of values by key path of the scenario; the last key changes fastest.
        ask: plan (search the best plan of each point) or simulate (time the given plan).
        execution: where points are computed, and the store of their results; by default all cores.
        progress: called after every result.

    Raises:
        InputError: a wrong key, an unknown scenario or key path, or too many points.
        MeshwrightError: a worker was killed, or the store's disk is full.
    """
    where, folder, data = "sweep", Path(), {}
    if isinstance(definition, Mapping):
        data = dict(definition)
    elif definition is not None:
        path = sweep_path(str(definition))
        where, folder, data = str(path), path.parent, dict(read_mapping(path))
    stated = {"scenario": scenario, "grid": grid, "ask": ask}
    data |= {key: value for key, value in stated.items() if value is not None}
    if isinstance(data.get("scenario"), Path):
        data["scenario"] = str(data["scenario"])
    if isinstance(grid, Mapping):
        data["grid"] = {key: list(values) for key, values in grid.items()}
    read = SweepGrid.of(data, where, folder)
    return SweepResult(
        read.sweep.title, run_sweep(read, execution or Execution(), progress), list(read.sweep.grid)
    )
