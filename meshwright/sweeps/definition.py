"""The keys of a sweep's file, and the questions of its grid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from core.errors import InputError, UnknownNameError
from core.loading import Strict, build, exists, looks_like_path, read_mapping
from meshwright.questions.keys import set_key
from meshwright.questions.scenarios import scenario_path
from simulator.scenario import CATALOGUES, changed

MOST_POINTS = 1_000_000

Ask = Literal["simulate", "plan"]


class Sweep(Strict):
    """The keys of a sweep's file."""

    title: str = Field("", description="the question in one line")
    ask: Ask = Field(
        "plan", description="plan: search the best plan of a point; simulate: time the given one"
    )
    scenario: str | dict[str, Any] = Field(
        description="what all points share, for training or serving: shipped name, path or mapping"
    )
    grid: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(
        min_length=1, description="lists of values by key path (`gpus`, `workload.global_batch`)"
    )


def sweep_path(reference: str) -> Path:
    """The file that a path or the name of a shipped sweep means.

    Raises:
        UnknownNameError: neither.
    """
    shipped = {path.stem: path for path in sorted((Path(__file__).parent / "shipped").glob("*.yaml"))}
    path = Path(reference)
    if reference in shipped and not exists(path):
        return shipped[reference]
    if exists(path) or looks_like_path(reference):
        return path
    raise UnknownNameError("sweep", reference, shipped)


@dataclass(frozen=True)
class SweepPoint:
    """One question of a grid."""

    values: dict[str, Any]
    """By key path of the grid."""
    data: dict[str, Any]
    """The scenario."""


@dataclass(frozen=True)
class SweepGrid:
    """A sweep, read."""

    sweep: Sweep
    base: dict[str, Any]
    folder: Path
    where: str

    @classmethod
    def read(cls, reference: str | Path) -> SweepGrid:
        """Read a sweep's file, or the shipped one of a name.

        Raises:
            UnknownNameError: no shipped sweep has this name (nearest offered).
            InputError: a wrong key, an unknown scenario or key path, or too many points.
        """
        path = sweep_path(str(reference))
        return cls.of(read_mapping(path), str(path), path.parent)

    @classmethod
    def of(cls, data: Mapping[str, Any], where: str, folder: Path) -> SweepGrid:
        """Check a sweep's mapping.

        Args:
            data: the mapping.
            where: its name in errors.
            folder: base of its relative paths.

        Raises:
            InputError: as ``read``.
        """
        if "grid" not in data and {"model", "workload"} & data.keys():
            keys = f"scenario: {where}, grid: {{plan.tensor: [1, 2]}}"
            raise InputError(f"is a scenario; a sweep names it and a grid ({keys})", where)
        sweep = build(Sweep, data, where)
        base = sweep.scenario
        if isinstance(base, str):
            beside = folder / base
            path = beside if exists(beside) and beside.is_file() else scenario_path(base)
            base, folder = read_mapping(path), path.parent
        base = {key: value for key, value in base.items() if key != "variations"}
        grid = cls(sweep, dict(base), folder, where)
        if grid.size > MOST_POINTS:
            raise InputError(f"has {grid.size:,} points, more than {MOST_POINTS:,}", f"{where}: grid")
        for key, values in sweep.grid.items():
            set_key(grid.base, key, values[0], folder, f"{where}: grid")
        return grid

    @property
    def size(self) -> int:
        """Points of the grid."""
        return prod(len(values) for values in self.sweep.grid.values())

    def points(self) -> Iterator[SweepPoint]:
        """All questions, the last key changing fastest."""
        keys = list(self.sweep.grid)
        for values in product(*self.sweep.grid.values()):
            data = self.base
            for key, value in zip(keys, values, strict=True):
                data = self._set(data, key, value)
            yield SweepPoint(dict(zip(keys, values, strict=True)), data)

    def _set(self, data: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
        first = key.partition(".")[0]
        if "." in key and first in CATALOGUES:
            return set_key(data, key, value, self.folder, f"{self.where}: grid")
        return changed(data, key, value, f"{self.where}: grid")
