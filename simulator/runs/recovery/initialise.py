"""Initialisation of communicators; it grows with the ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from core.durations import Span
from simulator.faults import FaultList, Law, Notice
from simulator.runs.recovery.stage import RecoveryStage

PER_RANK_S = 3e-3
"""Seconds a rank: under 30 s at over 10,000 GPUs, under 5 s at the smaller scale (MegaScale, NSDI 2024, fast
initialisation): both are bounds, and 3 ms a rank meets them."""


class Initialise(RecoveryStage):
    """``per-rank``, a duration, a law, or ``base`` and ``per_rank``."""

    HELP: ClassVar[str] = "communicators of all ranks; by default a time per rank"

    after: Law | None = Field(None, description="duration or law at any size")
    base: Span = Field(0.0, description="seconds beside those of the ranks")
    per_rank: Span = Field(PER_RANK_S, description="seconds a rank")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        if value == "per-rank":
            return {}
        names = {"after", "base", "per_rank"}
        if isinstance(value, Initialise) or (
            isinstance(value, Mapping) and (not value or names & set(value))
        ):
            return value
        return {"after": value}

    def mean(self, notice: Notice, nodes: int, devices: int) -> float:
        """Mean seconds."""
        return self.after.mean if self.after else self.base + self.per_rank * devices

    def draw(self, rng: np.random.Generator, faults: FaultList, devices: int) -> NDArray[np.float64]:
        """Seconds after each fault."""
        law = self.after or Law.of(self.base + self.per_rank * devices)
        return law.draw(rng, len(faults))

    def assumed(self, devices: int) -> str:
        """The time per rank, where it is the default."""
        if self.after is None and self.per_rank == PER_RANK_S:
            return f"recovery.initialise: {1e3 * PER_RANK_S:g} ms a rank (bounds of MegaScale)"
        return ""
