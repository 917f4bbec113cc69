"""Requests of a workload, drawn or read: the lengths and the rate that a search needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hwmodels.errors import InputError
from simulator.serving.workload import Serving
from simulator.serving.workload.source import Source

Array = NDArray[np.float64]

DRAWS = 20_000
"""Maximum number of requests drawn, or read from a trace."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Requests of a workload.

    Attributes:
        prompts, outputs: tokens, shape (requests,).
        rate: requests a second; None for a closed loop or a burst.
    """

    prompts: Array
    outputs: Array
    rate: float | None


def sample(workload: Serving, seed: int, folder: Path, longest: int) -> Sample:
    """Draw or read the first requests.

    Args:
        workload: lengths or a trace; single requests, not programs.
        seed: seed of the drawn lengths.
        folder: base of a trace's relative path.
        longest: maximum tokens of a request.

    Raises:
        InputError: a wrong row of the trace, a request longer than ``longest``, programs, or no request.
    """
    source = Source(workload.model_copy(update={"requests": DRAWS}), seed, folder, longest)
    if source.feeds_back:
        raise InputError(
            "a search needs single requests in an open loop: no closed arrivals, no program of several turns",
            "workload",
        )
    drawn = [(request.arrival_s, request.prompt, request.output) for request in source.requests()]
    if not drawn:
        raise InputError("the trace has no requests", "workload.trace")
    times, prompts, outputs = np.array(drawn, float).T
    if workload.arrivals is not None:
        return Sample(prompts, outputs, workload.arrivals.mean_rate())
    span = float(times[-1] - times[0])
    return Sample(prompts, outputs, (len(times) - 1) / span if span else None)
