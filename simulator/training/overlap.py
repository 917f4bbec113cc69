"""Overlap of communication with kernels: how much overlaps, and how much it slows the kernels.

Cost functions say which work can overlap; the closed form adds up the exposed time, the event engine runs the
communication on a separate stream.
"""

from __future__ import annotations

import numpy as np

from hwmodels.collectives.cost import Cost
from hwmodels.records import record
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


def contention(setting: Setting, ranks: np.ndarray) -> np.ndarray:
    """Share of their speed that kernels lose while a collective runs beside them.

    A collective that leaves the domain moves a tenth of the bytes per second, and costs multiprocessors only.

    Args:
        setting: what the plans share.
        ranks: ranks from the first of a group to its last, shape (...).
    """
    alone = multiprocessors_taken(setting)
    inside = SLOWDOWN.get(setting.cluster.device.vendor, alone)
    return np.where(ranks <= setting.cluster.domain, inside, alone)


def hidden(communication: np.ndarray, window: np.ndarray, slowdown: np.ndarray | float) -> np.ndarray:
    """Seconds of communication that run beside ``window`` seconds of kernels, which last longer meanwhile."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.minimum(communication, np.where(window > 0, window / (1 - slowdown), 0.0))


def hide(communication: np.ndarray, window: np.ndarray, tail: np.ndarray, slowdown: np.ndarray) -> np.ndarray:
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
    """

    cost: Cost
    beside: np.ndarray | float = 0.0
    slows: np.ndarray | float = 0.0

    @property
    def total(self) -> np.ndarray:
        """Seconds, beside kernels or not, shape (plans,)."""
        return self.cost.seconds

    @property
    def exposed(self) -> np.ndarray:
        """Seconds that it adds to the pass, shape (plans,)."""
        return self.cost.seconds - (1 - self.slows) * self.beside

    def times(self, factor: np.ndarray) -> Transfer:
        """The same communication a number of times, shape (plans,)."""
        if self is NO_TRANSFER:
            return self
        return Transfer(self.cost * factor, self.beside * factor, self.slows)


NO_TRANSFER = Transfer(Cost.none())
"""No communication of a kind in a pass, whatever the plan."""


@record()
class Exchange:
    """One round of gathering or reducing the state of a device, cut into collectives beside a run of kernels.

    Args:
        cost: the round; arrays of shape (plans,).
        tail: share of it that has no kernels to run beside: its first or last collective, or all of it.
    """

    cost: Cost
    tail: np.ndarray

    def exposed(self, window: np.ndarray, slowdown: np.ndarray) -> np.ndarray:
        """Exposed seconds beside ``window`` seconds of kernels, shape (plans,)."""
        return hide(self.cost.seconds, window, self.tail, slowdown)
