"""Measured constants of links and fabrics, from which collective times are computed.

The communication libraries (NCCL, RCCL) move data by one of three protocols: LL sends a flag with
every word and has the least latency; LL128 sends one per 128 bytes; Simple fills the wire and pays a
synchronisation per chunk. Each protocol has a time to start, a time per hop and a share of the wire.
"""

from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from core.loading import Catalogue, Strict
from core.quantities import NotNegative, Positive
from core.sources import Sourced
from hwmodels.collectives.remote_reads import RemoteReads

Family = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive"]
FAMILIES: dict[str, Family] = {
    "all_reduce": "all_reduce",
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "broadcast": "all_gather",
    "all_to_all": "all_to_all",
    "send_receive": "send_receive",
    "chain": "send_receive",
}
"""The family of constants of each operation; operations with the same data movement share one."""


class Protocol(Strict):
    """One protocol on one kind of link."""

    start_s: NotNegative
    """Time to launch and set up, once per call, s."""
    step_s: NotNegative
    """Time of each hop from one rank to the next, s."""
    efficiency: Positive
    """Share of the link's bandwidth that payload fills."""


class Protocols(Strict):
    """The three protocols on one kind of link, for one family of operations."""

    ll: Protocol
    ll128: Protocol
    simple: Protocol
    own_copy: NotNegative = 0
    """A rank also copies its own n-th of the buffer: time of a copied byte over that of a sent byte."""

    def table(self) -> NDArray[np.float64]:
        """Return start, step and efficiency by protocol, shape (3, protocols)."""
        return np.array([[p.start_s, p.step_s, p.efficiency] for p in (self.ll, self.ll128, self.simple)]).T


class InSwitch(Strict):
    """Reduction inside the switch (NVLS): a rank sends its buffer once and receives one n-th more."""

    start_s: NotNegative
    efficiency: Positive
    from_ranks: Annotated[int, Field(ge=2)]
    """Smallest group for which the library uses it."""


class DomainRates(Strict):
    """Speed of a library's token dispatch inside a domain over an all-to-all of the same bytes."""

    ranks: list[Annotated[int, Field(ge=2)]]
    """Ranks that exchange tokens, ascending."""
    share: list[Positive]
    """Speed with as many ranks; between them by their logarithm, beyond them the nearest."""
    links_per_s: Positive | None = None
    """Bytes/s of the links measured, if multiprocessors set the pace there: slower links hide it."""
    combined_per_s: Positive | None = None
    """Copies that a rank's combination reads a second at most, however narrow; none where not measured."""

    @model_validator(mode="after")
    def _pairs(self) -> "DomainRates":
        if len(self.ranks) != len(self.share) or self.ranks != sorted(set(self.ranks)):
            raise ValueError("ranks must ascend and have one share each")
        return self


class LinkCalibration(Sourced):
    """Constants of one kind of link inside a domain."""

    name: str
    all_reduce: Protocols
    all_gather: Protocols
    """Also used for broadcast."""
    reduce_scatter: Protocols
    all_to_all: Protocols
    send_receive: Protocols
    in_switch: InSwitch | None = None
    remote_reads: RemoteReads | None = None
    """All-reduce kernels of serving engines; none where engines turn them off."""
    dispatchers: dict[str, DomainRates] = Field(default_factory=dict)
    """Libraries that dispatch tokens to experts; those not listed are as fast as an all-to-all."""
    provenance: str
    """Measurements with their authors, and the constants taken from another link."""
    errors: dict[str, str] = Field(default_factory=dict)
    """Remaining error, "median / 90th percentile" in percent, by operation and group size."""

    @cached_property
    def latency_s(self) -> float:
        """Measured latency of one hop: LL's step, whose receiver polls the data; median of the families."""
        # Not numpy.median, which imports masked arrays on first use.
        return median(getattr(self, family).ll.step_s for family in get_args(Family))


class DispatchRates(Strict):
    """Rates of a library that sends one copy of a token to each node that holds any of its experts.

    A dispatch or a combine takes ``start_s`` and the longer of two times: of the bytes at ``share`` of a
    device's part of the NICs, and of the copies to other nodes at ``copies_per_s``.
    """

    share: Positive
    """Rate of all copies, those to the own node included, over a device's part of the NICs."""
    copies_per_s: Positive | None = None
    """Copies that a device sends to other nodes in a second; none where the GPU itself posts them."""
    start_s: NotNegative = 0.0
    """Time beside bytes and copies: counts exchanged between all ranks before, barriers after, s."""
    blocks_host: bool = False
    """Whether the host launches no kernels during an exchange, whose messages CPU proxies post."""


class FabricCalibration(Sourced):
    """Constants of one kind of network between domains."""

    UNSOURCED = frozenset({"rows", "median_error"})

    name: str
    collective: Protocols
    """Constants of rings, trees and all-to-all, whose start includes filling the pipeline of chunks."""
    send_receive: Protocols
    """Constants of pairs, whose only hop is part of the start."""
    shared_efficiency: Positive
    """Remaining share of a collective's bandwidth when several groups drive the node's NICs at once."""
    send_receive_shared_efficiency: Positive
    """The same share for pairs, which load one direction at a time."""
    all_to_all_efficiency: Positive
    """Remaining share of the bandwidth when every rank sends to every other."""
    exchange_share: Positive = 1.0
    """Speed of an exchange with experts in training steps over benchmarks', among three nodes and more."""
    dispatchers: dict[str, DispatchRates] = Field(default_factory=dict)
    """Rates of libraries that dispatch tokens to experts; ``Network.dispatcher`` gives those not listed."""
    group_gbps: Positive | None = None
    """Gb/s of the one adapter of a node that all rings of a group use; none where they use all adapters."""
    part_ring_shares: Positive | None = None
    """Where devices share NICs: single-device shares of a node's NICs that the rings of a group use if
    it holds only part of every node's devices; none if rings use the shares of all members."""
    latency_s: NotNegative
    """One-way latency between devices below one leaf on the measured systems; the constants include it."""
    rows: int
    """Number of published figures that the constants were fitted to; 0 marks a prior, few allow no claim."""
    median_error: float | None = None
    """Relative error of the time on those figures."""
    provenance: str
    """The published figures with their authors, and the priors."""


link_calibrations = Catalogue("link calibration", Path(__file__).parent / "links", LinkCalibration)
fabric_calibrations = Catalogue("fabric", Path(__file__).parent / "fabrics", FabricCalibration)
