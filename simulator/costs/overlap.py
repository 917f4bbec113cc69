"""Communication beside kernels: what stays visible, and what it takes from the kernels."""

from __future__ import annotations

import numpy as np

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
