"""Location: which node is at fault."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simulator.faults import FaultList, Law, Notice
from simulator.runs.recovery.stage import RecoveryStage


class Locate(RecoveryStage):
    """A duration or a law; faults that take no node need none."""

    HELP: ClassVar[str] = "from knowing of a fault to knowing its node"

    after: Law = Field(Law.of(0.0), description="duration or law; default: 0 s")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        named = isinstance(value, Locate) or (isinstance(value, Mapping) and "after" in value)
        return value if named or value == {} else {"after": value}

    def mean(self, notice: Notice, nodes: int, devices: int) -> float:
        """Mean seconds."""
        return self.after.mean if nodes else 0.0

    def draw(self, rng: np.random.Generator, faults: FaultList, devices: int) -> NDArray[np.float64]:
        """Seconds after each fault."""
        return np.where(faults.nodes > 0, self.after.draw(rng, len(faults)), 0.0)

    def assumed(self, devices: int) -> str:
        """The default, which takes no time."""
        return "" if "after" in self.model_fields_set else "recovery.locate: 0 s"
