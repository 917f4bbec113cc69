"""Result of a profile run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Mode = Literal["quick", "full"]


@dataclass(frozen=True)
class SkippedPoint:
    """A point that could not be measured, with the reason in one line."""

    point: str
    reason: str


@dataclass(frozen=True)
class ProfileResult:
    """The outcome of one run.

    Attributes:
        out: the folder of point files.
        device: value of the ``gpu`` column.
        planned: points in the plan.
        measured: points measured by this run.
        resumed: points of the plan that ``out`` already held.
        noisy: points measured by this run whose repeats scatter by more than a tenth.
        skipped: points that could not be measured.
        interrupted: whether Ctrl-C ended the run before the plan was done.
        seconds: wall time of this run.
        files: the point files that the folder now holds.
    """

    out: Path
    device: str
    planned: int
    measured: int
    resumed: int
    noisy: int
    skipped: tuple[SkippedPoint, ...]
    interrupted: bool
    seconds: float
    files: tuple[Path, ...]
