"""Types of quantities with plausible ranges, which reveal wrong units."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(gt=0, le=2**24)]
Few = Annotated[int, Field(ge=1, le=4096)]
"""Replicas, ranks and requests simulated individually."""
Tokens = Annotated[int, Field(ge=1, le=2**27)]
"""Tokens of a sequence."""
Rate = Annotated[float, Field(ge=1e-6, le=1e6)]
"""Events a second."""
Duration = Annotated[float, Field(ge=0, le=1e7)]
"""Maximum duration, s: a third of a year."""

SLOWEST_LINK = 1e6
"""Minimum bandwidth, B/s; a slower link was probably given in GB/s."""
LONGEST_LATENCY_S = 1e-2
"""Maximum latency, s; a longer latency was probably given in microseconds."""
FASTEST_NIC_GBPS = 1e5
"""Maximum bandwidth, Gb/s; a faster link was probably given in bits or bytes."""


def _bytes_per_second(value: float) -> float:
    if value < SLOWEST_LINK:
        raise ValueError("is in bytes per second (450 GB/s is 450e9)")
    return value


def _seconds(value: float) -> float:
    if value > LONGEST_LATENCY_S:
        raise ValueError("is in seconds (2 microseconds are 2e-6)")
    return value


def _gigabits(value: float) -> float:
    if value > FASTEST_NIC_GBPS:
        raise ValueError("is in Gb/s (400 Gb/s is 400)")
    return value


Bandwidth = Annotated[Positive, AfterValidator(_bytes_per_second)]
"""B/s."""
Latency = Annotated[NotNegative, AfterValidator(_seconds)]
"""s."""
Gigabits = Annotated[Positive, AfterValidator(_gigabits)]
"""Gb/s."""
