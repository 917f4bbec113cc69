"""A burst: all requests at once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Literal

import numpy as np

from simulator.serving.workload.arrivals.base import Arrivals


class Burst(Arrivals):
    """Every request arrives at time 0: the offline case."""

    kind: Literal["burst"] = "burst"

    def times(self, random: np.random.Generator) -> Iterator[float]:
        """See `Arrivals.times`."""
        return repeat(0.0)
