"""Requests of a workload, drawn or read: the lengths and the rate that a search needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError
from simulator.lengths.fixed import FixedLength
from simulator.serving.workload import Serving
from simulator.serving.workload.programs.base import Call, Calls
from simulator.serving.workload.programs.single import Single
from simulator.serving.workload.request import Request
from simulator.serving.workload.source import Source
from simulator.serving.workload.traces import get_format

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
        turns: requests of a program, mean.
        between_s: mean seconds from an answer, or a program's begin, to the next request.
    """

    prompts: Array
    outputs: Array
    rate: float | None
    repeated: Array | float = 0.0
    distinct: float = 0.0
    common: bool = False
    turns: float = 1.0
    between_s: float = 0.0


def sample(workload: Serving, seed: int, folder: Path, longest: int, images: int = 0) -> Sample:
    """Draw or read the first requests.

    Args:
        workload: lengths, a trace, or programs, whose requests come one after the other.
        seed: seed of the drawn lengths.
        folder: base of a trace's relative path.
        longest: maximum tokens of a request.
        images: tokens of a request's images, which drawn lengths do not count.

    Raises:
        InputError: a wrong row of the trace, a request longer than ``longest``, closed arrivals of single
            requests, or no request.
    """
    source = Source(workload.model_copy(update={"requests": DRAWS}), seed, folder, longest, images=images)
    if has_programs(workload):
        return _of_programs(source, longest)
    if source.feeds_back:
        raise InputError(
            "a search needs an open loop, found closed arrivals; --concurrency asks for them",
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


def has_programs(workload: Serving) -> bool:
    """Whether requests are those of programs, or of recorded sessions."""
    sessions = workload.trace is not None and get_format(workload.trace.format).sessions is not None
    return sessions or not isinstance(workload.program, Single)


PROGRAM_DRAWS = 4_000
"""Requests of programs that are drawn at least."""


def _of_programs(source: Source, longest: int) -> Sample:
    """Requests of whole programs, one program after the other."""
    calls: list[Call] = []
    number = 0
    for number, program in enumerate(source.programs(), 1):  # noqa: B007 (counted to the end)
        calls += _walked(program)
        if len(calls) >= PROGRAM_DRAWS:
            break
    if not calls:
        raise InputError("the trace has no sessions", "workload.trace")
    for serial, call in enumerate(calls):
        if call.prompt + call.output > longest:
            source.check(serial, call.prompt, call.output)
    seen: set[int] = set()
    repeated = np.array([_repeated(call, seen, source.prefix_tokens) for call in calls], float)
    drawn = [(call.prompt, call.output, call.after_s) for call in calls]
    prompts, outputs, waits = np.array(drawn, float).T
    distinct, turns = float(len(seen) * source.prefix_tokens), len(calls) / number
    between_s = float(waits.mean())
    return Sample(prompts, outputs, None, repeated, distinct, turns=turns, between_s=between_s)


def _walked(calls: Calls) -> Iterator[Call]:
    """All requests of a program, those of sub-agents behind the ones that start them."""
    for sent in calls:
        for call in sent:
            yield call
            if call.then is not None:
                yield from _walked(call.then)


def _repeated(request: Request | Call, seen: set[int], span: int) -> int:
    """Leading prompt tokens whose prefix ids were seen before; enters the request's ids."""
    seen_blocks = 0
    for prefix in request.prefix:
        if prefix not in seen:
            break
        seen_blocks += 1
    seen.update(request.prefix)
    return min(seen_blocks * span, request.prompt - 1)
