"""Loading: the checkpoint is read back over real links, unless a duration is stated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simulator.faults import FaultList, Law, Notice
from simulator.runs.recovery.stage import RecoveryStage


class LoadState(RecoveryStage):
    """``auto``, a duration or a law."""

    HELP: ClassVar[str] = "reading the checkpoint back; by default bytes over the rates of its place"

    after: Law | None = Field(None, description="duration or law; default: from bytes and rates")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        if value == "auto":
            return {}
        named = isinstance(value, LoadState) or (
            isinstance(value, Mapping) and (not value or "after" in value)
        )
        return value if named else {"after": value}

    def mean(self, notice: Notice, nodes: int, devices: int) -> float:
        """Mean seconds where stated; NaN where the place decides."""
        return self.after.mean if self.after else float("nan")

    def draw(self, rng: np.random.Generator, faults: FaultList, devices: int) -> NDArray[np.float64]:
        """Seconds after each fault; NaN where the place decides."""
        return self.after.draw(rng, len(faults)) if self.after else np.full(len(faults), np.nan)
