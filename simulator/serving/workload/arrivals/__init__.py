"""Arrival processes by kind: one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from simulator.serving.workload.arrivals.base import Arrivals
from simulator.serving.workload.arrivals.burst import Burst
from simulator.serving.workload.arrivals.closed import Closed
from simulator.serving.workload.arrivals.gamma import Gamma
from simulator.serving.workload.arrivals.piecewise import Piecewise
from simulator.serving.workload.arrivals.poisson import Poisson
from simulator.serving.workload.arrivals.uniform import UniformArrivals

KINDS: tuple[type[Arrivals], ...] = (Poisson, Gamma, UniformArrivals, Piecewise, Burst, Closed)
arrivals = {kind.model_fields["kind"].default: kind for kind in KINDS}

if TYPE_CHECKING:
    AnyArrivals = Arrivals
else:
    AnyArrivals = Annotated[Union[KINDS], Field(discriminator="kind")]  # noqa: UP007

__all__ = ["AnyArrivals", "Arrivals", "Closed", "arrivals"]
