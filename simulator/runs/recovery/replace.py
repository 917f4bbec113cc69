"""Replacement: a warm spare, another place in the queue, or a restart in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from simulator.faults import FaultList, Law, Notice
from simulator.runs.recovery.stage import RecoveryStage

REQUEUE_S, IN_PLACE_S = (454.0, 768.0), (46.0, 65.0)
"""Scheduling time of a whole job again, and of a restart on the same nodes, of 2,048 and of 16,384 GPUs
(ByteRobust, arXiv 2509.16293, table 7)."""

SIZES = (2048, 16384)


def scheduling_s(ends: tuple[float, float], devices: int) -> float:
    """A scheduling time at another size: a line over the log of the devices, never below 10 s."""
    doublings = math.log2(SIZES[1] / SIZES[0])
    slope = (ends[1] - ends[0]) / doublings
    return max(ends[0] + slope * math.log2(max(devices, 1) / SIZES[0]), 10.0)


class Replace(RecoveryStage):
    """``warm_spare`` takes a spare, and waits for a repair where none is left; ``requeue`` finds nodes."""

    HELP: ClassVar[str] = (
        "until healthy nodes run the job's processes: warm spare, re-queue, restart in place"
    )

    warm_spare: Law | None = Field(None, description="duration where a spare is ready")
    requeue: Law | None = Field(None, description="duration of scheduling the job again; no spare is needed")
    in_place: Law | None = Field(None, description="duration where no node is lost")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        names = {"warm_spare", "requeue", "in_place"}
        if isinstance(value, Replace) or (isinstance(value, Mapping) and (not value or names & set(value))):
            return value
        return {"requeue": value, "in_place": value}

    @property
    def takes_spares(self) -> bool:
        """Whether lost nodes are replaced by spares."""
        return self.warm_spare is not None

    def lost(self, devices: int) -> Law:
        """Law of a fault that takes nodes."""
        return self.warm_spare or self.requeue or Law.of(scheduling_s(REQUEUE_S, devices))

    def restarted(self, devices: int) -> Law:
        """Law of a fault that takes none."""
        return self.in_place or Law.of(scheduling_s(IN_PLACE_S, devices))

    def mean(self, notice: Notice, nodes: int, devices: int) -> float:
        """Mean seconds, without waiting for spares."""
        return (self.lost(devices) if nodes else self.restarted(devices)).mean

    def draw(self, rng: np.random.Generator, faults: FaultList, devices: int) -> NDArray[np.float64]:
        """Seconds after each fault, without waiting for spares."""
        count = len(faults)
        lost, healthy = self.lost(devices).draw(rng, count), self.restarted(devices).draw(rng, count)
        return np.where(faults.nodes > 0, lost, healthy)

    def assumed(self, devices: int) -> str:
        """The scheduling times, where the scenario states none."""
        parts = []
        if self.warm_spare is None and self.requeue is None:
            parts.append(f"re-queue in {self.lost(devices).mean:.0f} s")
        if self.in_place is None:
            parts.append(f"restart in place in {self.restarted(devices).mean:.0f} s")
        return f"recovery.replace: {', '.join(parts)} (ByteRobust, by size)" if parts else ""
