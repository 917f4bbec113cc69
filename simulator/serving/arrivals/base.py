"""Interface of arrival processes: the times at which programs (or single requests) begin."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

from hwmodels.loading import Strict

BLOCK = 4096
"""Draws at once."""


class Arrivals(Strict):
    """One arrival process.

    Attributes:
        closed: a client begins its next program when its last one ended, so completions feed arrivals.
    """

    kind: Any
    closed: ClassVar[bool] = False

    @abstractmethod
    def times(self, random: np.random.Generator) -> Iterator[float]:
        """Yield instants in seconds, in order, without end; of a closed process its clients' starts."""

    def mean_rate(self) -> float | None:
        """Mean programs per second; None where completions determine it."""
        return None


def summed(gaps: Iterator[np.ndarray]) -> Iterator[float]:
    """Instants after gaps that come in blocks; the first arrival is at 0."""
    now = 0.0
    for block in gaps:
        instants = now + np.concatenate(([0.0], np.cumsum(block)))
        yield from instants[:-1].tolist()
        now = float(instants[-1])
