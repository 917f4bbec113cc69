"""Overlap of communication with kernels: how much overlaps, and how much it slows the kernels.

Cost functions say which work can overlap; the closed form adds up the exposed time, the event engine runs the
communication on a separate stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from core.records import record
from hwmodels.collectives.cost import Cost, Links
from simulator.setting import Setting

COLLECTIVE_MULTIPROCESSORS = 16
"""Thread blocks of one collective, each occupying a multiprocessor: NCCL opens up to 16 to 24 channels on
eight-GPU nodes."""

SLOWDOWN = {"nvidia": 0.35, "amd": 0.79}
"""Share of their speed that kernels lose while a collective runs beside them over the links of a domain:
multiprocessors, cache, memory bandwidth and power. NVIDIA: training on A100 and H100 loses 0.19 on average,
up to 0.40 (Lee et al. 2025, arXiv 2507.03114); 0.35 is what the hidden tensor-parallel traffic of NeMo's rows
on H100 costs. AMD: concurrent collectives and products on MI300X gain 21 % of what ideal overlap would
(Agrawal et al. 2024, arXiv 2412.14335); RCCL occupies 56 to 96 compute units (ROCm/rccl#2073, #1302)."""


def multiprocessors_taken(setting: Setting) -> float:
    """Share of a device's multiprocessors that a running collective takes from kernels beside it."""
    return min(1.0, COLLECTIVE_MULTIPROCESSORS / setting.cluster.device.multiprocessors)


def contention(
    setting: Setting,
    size: np.ndarray,
    stride: np.ndarray | int,
    seconds: np.ndarray,
    sent: Callable[[], np.ndarray],
) -> np.ndarray:
    """Share of their speed that kernels lose while collectives run beside them; broadcast of all shapes.

    Thread blocks of a collective take multiprocessors for as long as it runs, on any link. Its bytes take
    cache, memory bandwidth and power beyond them: of kernels beside a collective that leaves its domain as
    many seconds as the same bytes take there at the rate of a domain's links, and never more than the
    collective lasts. A faster link shortens the first part and leaves the second: no step is slower for it.

    Args:
        setting: what the plans share.
        size: ranks in the group.
        stride: distance between neighbours of the group, in ranks.
        seconds: of the collectives.
        sent: gives the bytes that a rank sends in them; asked where a group leaves its domain.
    """
    cluster, alone = setting.cluster, multiprocessors_taken(setting)
    inside = max(SLOWDOWN.get(cluster.device.vendor, alone), alone)
    leaves = (size > 1) & (size * stride > cluster.domain)
    if cluster.domain == 1 or not leaves.any():
        return np.where(leaves, alone, inside)
    at_ring_rate = sent() * cluster.domain_ring_s
    share = np.divide(at_ring_rate, seconds, out=np.ones(np.shape(seconds)), where=seconds > 0)
    return np.where(leaves, alone + (inside - alone) * np.minimum(share, 1.0), inside)


def exchange_slowdown(setting: Setting, size: np.ndarray, cost: Cost) -> np.ndarray:
    """Share of their speed that kernels lose beside an exchange with experts among ``size`` ranks.

    Between nodes its kernels hold multiprocessors until the network has delivered.
    """
    between = setting.cluster.device.generation.exchange_slowdown
    beside = contention(setting, size, 1, cost.seconds, lambda: cost.bytes.sum(axis=0))
    return np.where(size > setting.cluster.domain, np.maximum(beside, between), beside)


def hidden(communication: np.ndarray, window: np.ndarray, slowdown: np.ndarray | float) -> np.ndarray:
    """Seconds of communication that run beside ``window`` seconds of kernels, which last longer meanwhile."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.minimum(communication, np.where(window > 0, window / (1 - slowdown), 0.0))


def hide(
    communication: np.ndarray, window: np.ndarray, tail: np.ndarray, slowdown: np.ndarray | float
) -> np.ndarray:
    """Seconds by which communication extends ``window`` seconds of kernels.

    The share ``tail`` of the communication starts when the kernels have ended. Overlapped communication slows
    the kernels.
    """
    return communication - (1 - slowdown) * hidden(communication * (1 - tail), window, slowdown)


@record()
class Transfer:
    """Communication inside a layer pass, and how much of it runs beside the kernels of that pass.

    Args:
        cost: all of it; arrays of shape (plans,).
        beside: seconds that run beside kernels, shape (plans,); the rest follows them.
        slows: share of their speed that kernels lose meanwhile; a number, or shape (plans,).
        alone: share of the passes whose kernels have no such communication to run beside them and the other
            way round; a number, or shape (plans,).
    """

    cost: Cost
    beside: np.ndarray | float = 0.0
    slows: np.ndarray | float = 0.0
    alone: np.ndarray | float = 0.0

    @property
    def total(self) -> np.ndarray:
        """Seconds, beside kernels or not, shape (plans,)."""
        return self.cost.seconds

    @property
    def hidden(self) -> np.ndarray | float:
        """Seconds of the mean pass that run beside kernels."""
        return (1 - self.alone) * self.beside

    @property
    def gained(self) -> np.ndarray | float:
        """Seconds that running beside kernels saves a pass."""
        return (1 - self.slows) * self.beside

    @property
    def paired(self) -> np.ndarray:
        """Seconds that it adds to a pass whose kernels it runs beside, shape (plans,)."""
        return self.cost.seconds - self.gained

    @property
    def exposed(self) -> np.ndarray:
        """Seconds that it adds to the mean pass, shape (plans,)."""
        return self.paired + self.alone * self.gained

    def take(self, rows: np.ndarray) -> Transfer:
        """The communication of some of the plans."""
        if self is NO_TRANSFER:
            return self
        parts = (np.asarray(part) for part in (self.beside, self.slows, self.alone))
        return Transfer(self.cost[rows], *(part[rows] if part.ndim else part for part in parts))

    def times(self, factor: np.ndarray) -> Transfer:
        """The same communication a number of times, shape (plans,)."""
        if self is NO_TRANSFER:
            return self
        return Transfer(self.cost * factor, self.beside * factor, self.slows, self.alone)


NO_TRANSFER = Transfer(Cost.none())
"""No communication of a kind in a pass, whatever the plan."""


@record()
class Exchange:
    """One round of gathering or reducing the state of a device, cut into collectives beside a run of kernels.

    Args:
        cost: the round; arrays of shape (plans,).
        tail: share of it that has no kernels to run beside: its first or last collective, or all of it.
        slows: share of their speed that kernels lose beside it, shape (plans,).
    """

    cost: Cost
    tail: np.ndarray
    slows: np.ndarray | float

    def part(self, rows: list[int], share: np.ndarray) -> Exchange:
        """A share of the exchange of some rows, of arrays of shape (all rows, plans)."""
        seconds = self.cost.seconds[rows] * share
        cost = Cost(seconds, lambda: Links(*(part[:, rows] * share for part in self.cost.links())))
        tail, slows = (
            part[rows] if part.ndim > 1 else part for part in (np.asarray(self.tail), np.asarray(self.slows))
        )
        return Exchange(cost, tail, slows)

    def exposed(self, window: np.ndarray) -> np.ndarray:
        """Exposed seconds beside ``window`` seconds of kernels, shape (plans,)."""
        return hide(self.cost.seconds, window, self.tail, self.slows)


def mean_slows(parts: Iterable[Exchange | Transfer]) -> float:
    """Share of their speed that kernels lose beside communication of one plan: the mean over its seconds."""
    total = lost = 0.0
    for part in parts:
        seconds = np.asarray(part.cost.seconds)
        total, lost = total + float(seconds.sum()), lost + float((seconds * part.slows).sum())
    return lost / total if total else 0.0
