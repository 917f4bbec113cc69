"""Silent corruption: results are wrong until a check finds out, and work since the fault is lost."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from simulator.faults.process import Exposed, FaultList, Notice, RatedCause, poisson_times


class SilentCorruption(RatedCause):
    """A Poisson process whose faults show in `recovery.detect.checks`."""

    HELP: ClassVar[str] = "wrong results at a mean rate, found by the next check of the run"

    kind: Literal["silent"] = "silent"
    notice: Notice = Field("silent", description="always silent")

    @property
    def memoryless(self) -> bool:
        """False: work is lost from the fault on, not from its detection."""
        return False

    def draw(self, rng: np.random.Generator, job: Exposed, horizon_s: float) -> FaultList:
        """Faults of a job before ``horizon_s``."""
        return self.listed(rng, poisson_times(rng, self.rate(job), horizon_s))
