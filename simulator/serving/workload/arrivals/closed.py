"""A fixed number of clients, each with one program at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from core.quantities import Count, Duration
from simulator.serving.workload.arrivals.base import Arrivals


class Closed(Arrivals):
    """Constant concurrency, as ``--max-concurrency`` of vLLM's and SGLang's benchmark clients gives it.

    All clients start at once, so the first prompts queue behind each other; ``ramp`` spreads the starts.
    """

    closed: ClassVar[bool] = True
    kind: Literal["closed"] = "closed"
    concurrency: Count = Field(description="clients")
    ramp: Duration = Field(0.0, description="seconds over which the clients start, evenly")
    gap: Duration = Field(
        0.0, description="seconds from a client's last token to its next request: the client's own work"
    )
    think: Duration = Field(0.0, description="mean seconds between a client's programs, exponential")

    def times(self, random: np.random.Generator) -> Iterator[float]:
        """Starts of the clients."""
        return (self.ramp * client / self.concurrency for client in range(self.concurrency))
