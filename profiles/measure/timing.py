"""Timing of calls: events around replayed graphs on a GPU, the clock on a CPU.

Every timer takes a *rotation*: callables that do the same work on different memory, so that operands
come from memory and not from the last-level cache. It returns the median over repeats and their spread.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

if TYPE_CHECKING:
    import torch

Call = Callable[[], object]
Method = Literal["graph", "stream", "host"]

REPEATS = 5
NOISY = 0.1  # a larger spread indicates a busy machine; an idle one stays below 0.03


@dataclass(frozen=True)
class Timing:
    """Seconds for one call, and (third quartile - first quartile) / median over the repeats."""

    seconds: float
    spread: float


class Timer(Protocol):
    """Times the calls of a rotation."""

    def time(self, calls: Sequence[Call], min_seconds: float, method: Method) -> Timing:
        """Return the time of one call.

        Args:
            calls: the rotation, at least one.
            min_seconds: how long each repeat runs at least.
            method: "graph" replays the rotation from a CUDA graph; "stream" issues it again, timed on
                the device; "host" measures on the host from the first call to the end of the work.
        """
        ...


def summary(seconds: Sequence[float]) -> Timing:
    """Median and relative interquartile range of the repeats."""
    low, middle, high = np.percentile(seconds, (25, 50, 75))
    return Timing(float(middle), float((high - low) / middle))


class HostTimer:
    """Times with the host's clock; ``synchronize`` ends the work that calls leave behind."""

    WARM_UP_CALLS = 2
    SHORTEST_SECONDS = 1e-3  # below that the clock and the loop would be measured

    def __init__(self, synchronize: Callable[[], None] = lambda: None) -> None:
        self.synchronize = synchronize

    def time(self, calls: Sequence[Call], min_seconds: float, method: Method = "host") -> Timing:
        """See ``Timer``; whatever the method, the host's clock decides.

        A repeat continues the rotation of the previous repeat.
        """
        turn = itertools.cycle(calls)
        self._run(turn, self.WARM_UP_CALLS)
        count = 1
        while (elapsed := self._run(turn, count)) < self.SHORTEST_SECONDS:
            count *= 2
        count = max(count, round(min_seconds * count / elapsed))
        return summary([self._run(turn, count) / count for _ in range(REPEATS)])

    def _run(self, turn: Iterator[Call], count: int) -> float:
        self.synchronize()
        start = time.perf_counter()
        for call in itertools.islice(turn, count):
            call()
        self.synchronize()
        return time.perf_counter() - start


def _each(calls: Sequence[Call]) -> None:
    """Call every function once and free its result."""
    for call in calls:
        call()


class DeviceTimer:
    """Times with CUDA (or HIP) events on a side stream that all work runs on.

    Everything from making the inputs to the replay must run inside ``with timer.stream():``, because
    autograd runs a backward pass on the stream of its forward pass.
    """

    WARM_UP_REPLAYS = 3
    MIN_REPLAYS = 3
    TARGET_GRAPH_SECONDS = 2e-4
    MAX_GRAPH_CALLS = 512

    def __init__(self, torch: ModuleType, index: int) -> None:
        self.torch = torch
        self.side = torch.cuda.Stream(device=index)
        self.host = HostTimer(self.side.synchronize)

    def time(self, calls: Sequence[Call], min_seconds: float, method: Method) -> Timing:
        """See ``Timer``."""
        for call in calls[:2]:  # libraries choose kernels and take workspace at their first call
            call()
        self.side.synchronize()
        if method == "host":
            return self.host.time(calls, min_seconds)
        if method == "stream":
            return self._repeat(lambda: _each(calls), len(calls), min_seconds)
        graph, captured = self._capture(calls)
        try:
            return self._repeat(graph.replay, captured, min_seconds)
        finally:
            graph.reset()

    def _capture(self, calls: Sequence[Call]) -> tuple[torch.cuda.CUDAGraph, int]:
        """Record the rotation often enough to hide the launch of the graph."""
        once = self._events(lambda: _each(calls), 1)
        rounds = max(1, round(self.TARGET_GRAPH_SECONDS / max(once, 1e-6)))
        rounds = max(1, min(rounds, self.MAX_GRAPH_CALLS // len(calls)))
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.side):
            for _ in range(rounds):
                _each(calls)
        return graph, rounds * len(calls)

    def _repeat(self, replay: Call, calls: int, min_seconds: float) -> Timing:
        for _ in range(self.WARM_UP_REPLAYS):
            replay()
        once = self._events(replay, 1)
        replays = max(self.MIN_REPLAYS, round(min_seconds / max(once, 1e-6)))
        return summary([self._events(replay, replays) / (replays * calls) for _ in range(REPEATS)])

    def _events(self, replay: Call, times: int) -> float:
        start = self.torch.cuda.Event(enable_timing=True)
        end = self.torch.cuda.Event(enable_timing=True)
        start.record(self.side)
        for _ in range(times):
            replay()
        end.record(self.side)
        end.synchronize()
        return start.elapsed_time(end) / 1e3
