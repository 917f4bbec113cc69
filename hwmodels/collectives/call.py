"""Collectives to price, with all properties of their groups that algorithms read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from core.records import record

Floats = NDArray[np.float64]


@record()
class LinkCosts:
    """Costs of one set of links by protocol: arrays that broadcast to (protocols, calls)."""

    start_s: Floats
    step_s: Floats
    seconds_per_byte: Floats
    """Seconds per byte that a rank sends inside its domain, or that a domain sends through its NICs."""
    own_copy: Floats
    """Time to copy a byte of the rank's own share over the time of a byte on the wire."""
    latency_s: Floats
    """Latency of a hop minus the calibrated latency, s, shape (calls,); may be negative."""
    crossing_s: float = 0
    """Latency that a hop between leaves adds."""


@record()
class Switch:
    """Costs of a reduction in the switch: arrays that broadcast to (calls,)."""

    start_s: Floats
    """Infinite where no switch can reduce."""
    seconds_per_byte: Floats


@record()
class CollectiveCalls:
    """Collectives as one-dimensional arrays; either all stay in one domain or all leave it."""

    operation: str
    bytes_: Floats
    """The full buffer of each rank, B, as nccl-tests counts it."""
    size: Floats
    """Ranks in the group."""
    domains: Floats
    """Domains that the group spans."""
    leaves: Floats
    """Leaves of the network, or groups of a dragonfly, that the group spans."""
    inside: LinkCosts
    network: LinkCosts | None = None
    """None if the groups stay in one domain."""
    switch: Switch | None = None
    """None if nothing can be reduced in the switch."""

    @property
    def local(self) -> Floats:
        """Members of the group in one domain, on average."""
        return self.size / self.domains
