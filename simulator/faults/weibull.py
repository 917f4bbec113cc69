"""Faults whose gaps follow a Weibull law: shapes below 1 cluster, above 1 wear out."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from simulator.faults.process import Exposed, FaultList, RatedCause


class Weibull(RatedCause):
    """A renewal process of the job: gaps between its faults are Weibull with the stated mean."""

    HELP: ClassVar[str] = "gaps of the job's faults are Weibull; shape below 1: bursts"

    kind: Literal["weibull"] = "weibull"
    shape: Annotated[float, Field(gt=0.05, le=100)] = Field(
        description="1: exponential; below: bursts; above: wear"
    )

    @property
    def memoryless(self) -> bool:
        """Whether the shape is that of an exponential law."""
        return self.shape == 1

    def draw(self, rng: np.random.Generator, job: Exposed, horizon_s: float) -> FaultList:
        """Faults of a job before ``horizon_s``."""
        mean = 1 / self.rate(job)
        scale, times, last = mean / math.gamma(1 + 1 / self.shape), [np.zeros(0)], 0.0
        while last < horizon_s:
            some = max(int(1.2 * (horizon_s - last) / mean) + 8, 8)
            ahead = last + np.cumsum(scale * rng.weibull(self.shape, some))
            times.append(ahead)
            last = float(ahead[-1])
        joined = np.concatenate(times)
        return self.listed(rng, joined[joined < horizon_s])
