"""Faults that take a whole domain: the nodes below a leaf switch, or the racks of a power feed."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from core.durations import SomeTime
from simulator.faults.process import Exposed, FaultKind, FaultList, SingleCause, poisson_times


class Correlated(SingleCause):
    """A Poisson process of domains; all of a domain's nodes are lost together."""

    HELP: ClassVar[str] = "a switch or a power feed takes all nodes of its domain"

    kind: Literal["correlated"] = "correlated"
    domain: Annotated[int, Field(ge=1, le=2**20)] = Field(description="nodes of a domain")
    mtbf: SomeTime = Field(description="mean seconds between faults of one domain")

    @property
    def memoryless(self) -> bool:
        """True."""
        return True

    def rate(self, job: Exposed) -> float:
        """Faults of a job per second: one domain's, times the domains it lies in."""
        return -(-job.nodes // self.domain) / self.mtbf

    def loss_rate(self, job: Exposed) -> tuple[float, float]:
        """Nodes lost per second, and the mean seconds until they are back."""
        return self.rate(job) * min(self.domain, job.nodes), self.repair.mean

    def kinds(self, job: Exposed) -> list[FaultKind]:
        """The one kind: a whole domain."""
        return [FaultKind(self.rate(job), self.notice, min(self.domain, job.nodes))]

    def draw(self, rng: np.random.Generator, job: Exposed, horizon_s: float) -> FaultList:
        """Faults of a job before ``horizon_s``; the last domain may be partly used."""
        faults = self.listed(rng, poisson_times(rng, self.rate(job), horizon_s))
        domains = -(-job.nodes // self.domain)
        which = rng.integers(0, domains, len(faults))
        last = job.nodes - (domains - 1) * self.domain
        faults.nodes[:] = np.where(which == domains - 1, last, self.domain)
        return faults
