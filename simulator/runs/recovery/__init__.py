"""Stages of a recovery, one a file, in order in ``STAGES``."""

from __future__ import annotations

from types import MappingProxyType
from typing import Literal

import numpy as np
from pydantic import Field

from core.loading import Strict
from simulator.faults import FaultList, Notice
from simulator.runs.recovery.detect import Detect
from simulator.runs.recovery.initialise import Initialise
from simulator.runs.recovery.load import LoadState
from simulator.runs.recovery.locate import Locate
from simulator.runs.recovery.replace import Replace
from simulator.runs.recovery.stage import RecoveryStage

StageName = Literal["detect", "locate", "replace", "initialise", "load"]

STAGES = MappingProxyType(
    {"detect": Detect, "locate": Locate, "replace": Replace, "initialise": Initialise, "load": LoadState}
)
"""Stages in the order of a recovery."""


class Recovery(Strict):
    """The stages from a fault to the next productive step."""

    detect: Detect = Field(default_factory=lambda: Detect.model_validate({}), description=Detect.HELP)
    locate: Locate = Field(default_factory=lambda: Locate.model_validate({}), description=Locate.HELP)
    replace: Replace = Field(default_factory=lambda: Replace.model_validate({}), description=Replace.HELP)
    initialise: Initialise = Field(
        default_factory=lambda: Initialise.model_validate({}), description=Initialise.HELP
    )
    load: LoadState = Field(default_factory=lambda: LoadState.model_validate({}), description=LoadState.HELP)
    overlap: list[list[StageName]] = Field(
        default_factory=list, description="stages that run at the same time, as `[[initialise, load]]`"
    )

    def stage(self, name: str) -> RecoveryStage:
        """A stage by name."""
        return getattr(self, name)

    def hidden(self, seconds: dict[str, float]) -> dict[str, float]:
        """Seconds that each stage adds to the recovery: of overlapping ones only the longest counts."""
        waits = dict(seconds)
        for group in filter(None, self.overlap):
            longest = max(group, key=lambda name: seconds[name])
            for name in group:
                if name != longest:
                    waits[name] = 0.0
        return waits

    def means(self, notice: Notice, nodes: int, devices: int, load_s: float) -> dict[str, float]:
        """Mean seconds that each stage adds after a fault of a kind."""
        seconds = {name: self.stage(name).mean(notice, nodes, devices) for name in STAGES}
        if np.isnan(seconds["load"]):
            seconds["load"] = load_s
        return self.hidden(seconds)

    def draw(self, rng: np.random.Generator, faults: FaultList, devices: int) -> dict[str, np.ndarray]:
        """Seconds of each stage after each fault, overlap not yet applied; NaN where the place decides."""
        return {name: self.stage(name).draw(rng, faults, devices) for name in STAGES}

    def assumed(self, devices: int) -> list[str]:
        """What the stages assume where the scenario states nothing."""
        return [words for name in STAGES if (words := self.stage(name).assumed(devices))]


__all__ = ["STAGES", "Recovery", "RecoveryStage", "StageName"]
