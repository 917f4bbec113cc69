"""Communication beside kernels: how much of it has kernels to run beside, and what it takes from them.

Cost functions say what could run beside what; the closed form adds up what stays visible, the event engine
runs the rest on a stream of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hwmodels.collectives.cost import Cost
from simulator.setting import Setting

COLLECTIVE_MULTIPROCESSORS = 16
"""Thread blocks of one NCCL collective, each occupying a multiprocessor: NCCL opens up to 16 to 24 channels
on eight-GPU nodes, so a product that runs beside one has that many multiprocessors fewer."""


def contention(setting: Setting) -> float:
    """Share of a device's multiprocessors that a running collective takes from kernels beside it."""
    return min(1.0, COLLECTIVE_MULTIPROCESSORS / setting.cluster.device.multiprocessors)


def hide(communication: np.ndarray, window: np.ndarray, tail: np.ndarray, slowdown: float) -> np.ndarray:
    """Seconds by which communication beside ``window`` seconds of kernels makes the two last longer.

    The share ``tail`` of the communication starts when the kernels have ended. What runs beside kernels
    takes multiprocessors from them.
    """
    beside = np.minimum(communication * (1 - tail), window)
    return communication - beside + slowdown * beside


@dataclass(frozen=True)
class Transfer:
    """Communication inside a layer pass, and how much of it runs beside the kernels of that pass.

    Args:
        cost: all of it; arrays of shape (plans,).
        beside: seconds that run beside kernels, shape (plans,); the rest follows them.
        slows: share of their speed that kernels lose meanwhile.
    """

    cost: Cost
    beside: np.ndarray | float = 0.0
    slows: float = 0.0

    @property
    def total(self) -> np.ndarray:
        """Seconds, beside kernels or not, shape (plans,)."""
        return self.cost.seconds

    @property
    def exposed(self) -> np.ndarray:
        """Seconds by which it makes the pass longer, shape (plans,)."""
        return self.cost.seconds - (1 - self.slows) * self.beside

    def times(self, factor: np.ndarray) -> Transfer:
        """The same communication a number of times, shape (plans,)."""
        if self is NO_TRANSFER:
            return self
        return Transfer(self.cost * factor, self.beside * factor, self.slows)


NO_TRANSFER = Transfer(Cost.none())
"""A pass sends nothing of a kind, whatever the plan."""


@dataclass(frozen=True)
class Exchange:
    """One round of gathering or reducing the state of a device, cut into collectives beside a run of kernels.

    Args:
        cost: the round; arrays of shape (plans,).
        tail: share of it that has no kernels to run beside: its first or last collective, or all of it.
    """

    cost: Cost
    tail: np.ndarray

    def exposed(self, window: np.ndarray, slowdown: float) -> np.ndarray:
        """Seconds that stay visible beside ``window`` seconds of kernels, shape (plans,)."""
        return hide(self.cost.seconds, window, self.tail, slowdown)
