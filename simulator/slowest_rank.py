"""Devices of one kind are not equally fast, and a synchronous step waits for the slowest."""

from __future__ import annotations

import math
from statistics import NormalDist

SPREAD = 0.015
"""Standard deviation of the speed of devices of one kind under load, as a share of the mean. Sinha et al.,
Not All GPUs Are Created Equal (SC 2022, arXiv 2208.11035): 8 % between the whiskers of compute-bound runs
on five clusters of NVIDIA and AMD accelerators, which is 5.4 standard deviations of a normal
distribution."""

JITTER = 0.003
"""Mean delay of a rank in a step, as a share of it: host, network and clocks vary with time, with an
exponential tail, so that the longest delay grows with the log of the ranks (Petrini et al., SC 2003, show the
tail). From weak scaling alone, without the level of any step: Nemotron 15B on 16 to 2,048 H100 (DGX Cloud,
three releases, bf16) takes 0.40 to 0.60 % longer a doubling, of which 0.26 % is predicted without it."""


def slowest_of(devices: int) -> float:
    """Time of the slowest of ``devices`` devices over that of the average device.

    Expected maximum of independent normal speeds, in Blom's approximation (Blom 1958, section 6.9), plus
    that of independent exponential delays beyond their mean (a harmonic number less 1).
    """
    if devices <= 1:
        return 1.0
    speed = SPREAD * NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25))
    # Euler's constant and the next term of the harmonic number.
    harmonic = math.log(devices) + 0.5772156649 + 0.5 / devices
    return 1.0 + speed + JITTER * (harmonic - 1.0)
