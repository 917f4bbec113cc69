"""Devices of one kind are not equally fast, and a synchronous step waits for the slowest."""

from __future__ import annotations

from statistics import NormalDist

SPREAD = 0.015
"""Standard deviation of the speed of devices of one kind under load, as a share of the mean. Sinha et al.,
Not All GPUs Are Created Equal (SC 2022, arXiv 2208.11035): 8 % between the whiskers of compute-bound runs
on five clusters of NVIDIA and AMD accelerators, which is 5.4 standard deviations of a normal
distribution."""


def slowest_of(devices: int) -> float:
    """Time of the slowest of ``devices`` devices over that of the average device.

    The expected maximum of independent normal variables, in Blom's approximation (Blom 1958, section 6.9).
    """
    if devices <= 1:
        return 1.0
    return 1.0 + SPREAD * NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25))
