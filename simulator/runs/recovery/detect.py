"""Detection: heartbeats see processes end, collectives time out, their comparison sees who is late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from core.durations import SomeTime, Span
from simulator.faults import NOTICES, FaultList, Law, Notice
from simulator.runs.recovery.stage import RecoveryStage

COLLECTIVE_TIMEOUT_S = 600.0
"""Default timeout of NCCL collectives in torch.distributed (init_process_group: 10 minutes)."""

CHECKS_S = 3600.0
"""Time between checks for silent corruption where a scenario states none (assumed: an evaluation an hour)."""


class Detect(RecoveryStage):
    """The fastest of the stated ways that sees a kind of fault; a bare duration sees crashes and hangs."""

    HELP: ClassVar[str] = (
        "until somebody knows: heartbeat, collective timeout, comparison of collectives, checks"
    )

    after: Law | None = Field(None, description="duration or law for crashes and hangs")
    heartbeat: SomeTime | None = Field(None, description="interval of heartbeats; sees crashes")
    misses: Annotated[int, Field(ge=1, le=1000)] = Field(3, description="heartbeats missed until it counts")
    collective_timeout: Span | None = Field(
        None, description="timeout of collectives; sees crashes and hangs"
    )
    compare_collectives: Span | None = Field(
        None,
        description="time until a comparison of collectives finds the late rank (C4D); crashes and hangs",
    )
    checks: SomeTime | None = Field(None, description="interval of checks for silent corruption")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        return value if isinstance(value, Mapping | Detect) else {"after": value}

    def bounds(self, notice: Notice) -> tuple[float, float]:
        """Least and most seconds until a fault is known; uniform between."""
        if notice == "silent":
            return 0.0, self.checks or CHECKS_S
        spans = [span for span in (self.collective_timeout, self.compare_collectives) if span is not None]
        ways = [(span, span) for span in spans]
        if notice == "crash" and self.heartbeat is not None:
            ways.append((self.heartbeat * self.misses, self.heartbeat * (self.misses + 1)))
        return min(ways, key=sum, default=(COLLECTIVE_TIMEOUT_S, COLLECTIVE_TIMEOUT_S))

    def mean(self, notice: Notice, nodes: int, devices: int) -> float:
        """Mean seconds until a fault is known."""
        if self.after is not None and notice != "silent":
            return self.after.mean
        return sum(self.bounds(notice)) / 2

    def draw(self, rng: np.random.Generator, faults: FaultList, devices: int) -> NDArray[np.float64]:
        """Seconds until each fault is known."""
        share, delays = rng.uniform(size=len(faults)), np.zeros(len(faults))
        for number, notice in enumerate(NOTICES):
            rows = faults.notice == number
            least, latest = self.bounds(notice)
            delays[rows] = least + (latest - least) * share[rows]
            if self.after is not None and notice != "silent":
                delays[rows] = self.after.draw(rng, int(rows.sum()))
        return delays

    def assumed(self, devices: int) -> str:
        """The timeout, where nothing else sees hangs."""
        if self.after is None and self.collective_timeout is None and self.compare_collectives is None:
            return f"recovery.detect: collective timeout {COLLECTIVE_TIMEOUT_S:g} s (torch's default)"
        return ""
