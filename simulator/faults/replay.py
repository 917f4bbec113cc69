"""Replay of a trace: the faults of its first nodes, at their times and for their durations."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, PrivateAttr, ValidationInfo, model_validator

from core.durations import SomeTime
from core.errors import InputError
from simulator.faults.process import NOTICES, Exposed, FaultKind, FaultList, FaultProcess, Notice
from simulator.faults.trace import FaultTrace, read_trace


class Replay(FaultProcess):
    """The faults of a trace. A job of n nodes sees those of the trace's first n nodes."""

    HELP: ClassVar[str] = "the faults of a trace, at their times"
    repeats: ClassVar[bool] = False

    kind: Literal["replay"] = "replay"
    trace: str = Field(description="a shipped trace, or a CSV file with node, start_day, end_day, class")
    nodes: Annotated[int, Field(ge=1, le=2**20)] = Field(description="nodes of the traced cluster")
    duration: SomeTime = Field(description="length of the trace")
    notice: Notice = Field("crash", description="how its faults show")

    _trace: FaultTrace = PrivateAttr()

    @model_validator(mode="after")
    def _read(self, info: ValidationInfo) -> Replay:
        folder = (info.context or {}).get("folder") if isinstance(info.context, dict) else None
        try:
            self._trace = read_trace(self.trace, self.nodes, self.duration, Path(folder or "."), "trace")
        except InputError as error:
            raise ValueError(f"trace: {error}") from None
        return self

    @property
    def source(self) -> FaultTrace:
        """The trace."""
        return self._trace

    @property
    def memoryless(self) -> bool:
        """False."""
        return False

    @cached_property
    def causes(self) -> tuple[str, ...]:
        """Classes of the trace."""
        return tuple(sorted(set(self._trace.cause)))

    def rate(self, job: Exposed) -> float:
        """Starts of the replayed nodes a second of the trace."""
        return float(self._chosen(job).sum()) / self.duration

    def loss_rate(self, job: Exposed) -> tuple[float, float]:
        """Nodes lost per second, and the mean seconds until a lost node is back."""
        times = (self._trace.end - self._trace.start)[self._chosen(job) & self._trace.paired]
        return self.rate(job), float(times.mean()) if len(times) else 0.0

    def kinds(self, job: Exposed) -> list[FaultKind]:
        """The one kind of a trace."""
        return [FaultKind(self.rate(job), self.notice, 1)]

    def draw(self, rng: np.random.Generator, job: Exposed, horizon_s: float) -> FaultList:
        """Faults of a job before ``horizon_s``; the generator is not used.

        Raises:
            InputError: the trace is shorter, or has fewer nodes than the job.
        """
        if job.nodes > self.nodes:
            raise InputError(f"the trace has {self.nodes} nodes, the job {job.nodes}", "run.faults.trace")
        rows = np.flatnonzero(self._chosen(job) & (np.nan_to_num(self._trace.start, nan=np.inf) < horizon_s))
        start, end = self._trace.start[rows], self._trace.end[rows]
        repair = np.where(np.isnan(end), np.maximum(self.duration - start, 0.0), end - start)
        cause = np.array([self.causes.index(self._trace.cause[row]) for row in rows], dtype=int)
        count = len(rows)
        notice = np.full(count, NOTICES.index(self.notice))
        return FaultList(start, np.ones(count, dtype=int), repair, notice, cause, self.causes)

    def _chosen(self, job: Exposed) -> np.ndarray:
        return (self._trace.node < job.nodes) & np.isfinite(self._trace.start)
