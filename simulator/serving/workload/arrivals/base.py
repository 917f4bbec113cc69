"""Interface of arrival processes: the times at which programs (or single requests) begin."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from core.loading import Strict

BLOCK = 4096
"""Random numbers drawn per block."""


class Arrivals(Strict):
    """One arrival process.

    Attributes:
        closed: a client begins its next program when its last one ended, so completions feed arrivals.
    """

    kind: Any
    closed: ClassVar[bool] = False

    @abstractmethod
    def times(self, random: np.random.Generator) -> Iterator[float]:
        """Yield ascending arrival times without end, s; for a closed process, its clients' start times."""

    def mean_rate(self) -> float | None:
        """Mean programs per second; None where completions determine it."""
        return None


def summed(gaps: Iterator[np.ndarray]) -> Iterator[float]:
    """Arrival times from blocks of gaps, s; the first arrival is at 0."""
    now = 0.0
    for block in gaps:
        instants = now + np.concatenate(([0.0], np.cumsum(block)))
        yield from instants[:-1].tolist()
        now = float(instants[-1])
