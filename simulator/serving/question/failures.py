"""Failures and drains of replicas, as a deployment states them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from core.loading import Strict
from core.quantities import Duration
from simulator.serving.question.places import Place

if TYPE_CHECKING:
    from simulator.faults.exponential import Exponential


class Outage(Strict):
    """One failure of one replica."""

    time: Duration = Field(description="seconds from the start")
    replica: int = Field(ge=0, le=2**16, description="number of the replica, from 0 over all pools")


class Drain(Strict):
    """A drain: a replica takes no new requests for some time, and finishes its sequences."""

    time: Duration = Field(description="seconds from the start")
    replica: int = Field(ge=0, le=2**16, description="number of the replica, from 0 over all pools")
    until: Duration | None = Field(None, description="when it takes requests again; default: never")


class Failures(Strict):
    """Times of failures, and their durations."""

    mtbf: float | None = Field(
        None,
        ge=60,
        le=1e12,
        description="mean seconds between failures of one device; a replica fails with any",
    )
    at: list[Outage] = Field(default_factory=list, description="failures at given times (`time`, `replica`)")
    restore: Duration | None = Field(
        None, description="seconds until a failed replica is back; default: `start` and loading its weights"
    )
    start: Duration = Field(30.0, description="seconds to find devices, start the engine and warm it up")
    weights: Place = Field("nvme", description="where weights are loaded from: host, nvme or remote")
    retries: int = Field(3, ge=0, le=1000, description="times that a lost request is sent again at most")
    retry_after: Duration = Field(1.0, description="seconds until the router sends a lost request again")

    @property
    def process(self) -> Exponential | None:
        """Random failures as a fault process; None where there are none."""
        if self.mtbf is None:
            return None
        from simulator.faults.exponential import Exponential

        # `mtbf` is checked here, and may be longer than a run of weeks allows.
        return Exponential.model_construct(mtbf=self.mtbf, of="device", component="unknown", notice="crash")
