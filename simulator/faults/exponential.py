"""Faults without memory: the time to the next one is exponential."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from simulator.faults.process import Exposed, FaultList, RatedCause, poisson_times


class Exponential(RatedCause):
    """A Poisson process."""

    HELP: ClassVar[str] = "faults without memory at a mean rate"

    kind: Literal["exponential"] = "exponential"

    @property
    def memoryless(self) -> bool:
        """True."""
        return True

    def draw(self, rng: np.random.Generator, job: Exposed, horizon_s: float) -> FaultList:
        """Faults of a job before ``horizon_s``."""
        return self.listed(rng, poisson_times(rng, self.rate(job), horizon_s))

    def gap(self, rng: np.random.Generator, job: Exposed) -> float:
        """Seconds until the next fault, one draw: for a part that cannot fail while it is away."""
        mean = 1 / self.rate(job) if self.mtbf is None else self.mtbf / self.units(job)
        return float(rng.exponential(mean))
