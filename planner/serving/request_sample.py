"""Requests of a workload, drawn or read: the lengths and the rate that a search needs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError
from simulator.lengths.fixed import FixedLength
from simulator.serving.workload import Serving
from simulator.serving.workload.request import Request
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
        repeated: prompt tokens that a cache without limit would hold at arrival, shape (requests,).
        distinct: tokens of all prefixes.
        common: whether every request has one of a few system prompts, which running requests share.
    """

    prompts: Array
    outputs: Array
    rate: float | None
    repeated: Array | float = 0.0
    distinct: float = 0.0
    common: bool = False


def sample(workload: Serving, seed: int, folder: Path, longest: int, images: int = 0) -> Sample:
    """Draw or read the first requests.

    Args:
        workload: lengths or a trace; single requests, not programs.
        seed: seed of the drawn lengths.
        folder: base of a trace's relative path.
        longest: maximum tokens of a request.
        images: tokens of a request's images, which drawn lengths do not count.

    Raises:
        InputError: a wrong row of the trace, a request longer than ``longest``, programs, or no request.
    """
    source = Source(workload.model_copy(update={"requests": DRAWS}), seed, folder, longest, images=images)
    if source.feeds_back:
        raise InputError(
            "a search needs single requests in an open loop: no closed arrivals, no program of several turns",
            "workload",
        )
    lengths, arrivals = (workload.input, workload.output), workload.arrivals
    if not source.shares_prefixes and arrivals and all(isinstance(length, FixedLength) for length in lengths):
        prompt, output = (np.array([length.mean()]) for length in lengths if length is not None)
        return Sample(prompt + images, output, arrivals.mean_rate())
    seen: set[int] = set()
    requests = list(source.requests())
    if not requests:
        raise InputError("the trace has no requests", "workload.trace")
    drawn = [(request.arrival_s, request.prompt, request.output) for request in requests]
    times, prompts, outputs = np.array(drawn, float).T
    repeated = np.zeros_like(prompts)
    if source.shares_prefixes:
        repeated += [_repeated(request, seen, source.prefix_tokens) for request in requests]
    prefixes = repeated, float(len(seen) * source.prefix_tokens), workload.prefix is not None
    if workload.arrivals is not None:
        return Sample(prompts, outputs, workload.arrivals.mean_rate(), *prefixes)
    span = float(times[-1] - times[0])
    return Sample(prompts, outputs, (len(times) - 1) / span if span else None, *prefixes)


def _repeated(request: Request, seen: set[int], span: int) -> int:
    """Leading prompt tokens whose prefix ids were seen before; enters the request's ids."""
    known = 0
    for prefix in request.prefix:
        if prefix not in seen:
            break
        known += 1
    seen.update(request.prefix)
    return min(known * span, request.prompt - 1)
