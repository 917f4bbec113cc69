"""Interface of replicas: sequences go in, steps run from event to event, finished sequences come out.

A replica steps independently: the fleet submits sequences at times to which it advanced the replica, and
asks when its next step ends. At one instant arrivals come before the end of a step, so the schedule made
there sees them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from math import inf, sqrt
from typing import NamedTuple

from simulator.serving.question.options import EngineOptions
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.kv.paged import PagedBlocks
from simulator.serving.replica.meter import Meter
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers import Scheduler
from simulator.serving.replica.sequence import Sequence
from simulator.serving.steps.step_times import StepTimes
from simulator.serving.workload.request import Request

Listener = Callable[[Sequence, float], None]
"""Called with a sequence that leaves a replica, and the time."""


class Evicted(NamedTuple):
    """A sequence that left a replica before its last token; `StepLoop.submit` continues it elsewhere."""

    sequence: Sequence
    tokens: int
    """Tokens whose KV moves with it, also its ``loaded``; at zero its prompt is computed again."""
    ready_s: float
    """End of the last step that computes for it, s; no other replica may run it earlier."""


def ignore(_sequence: Sequence, _now: float) -> None:
    """Listener of a run that is over."""


def finish(step: PlannedStep, batcher: Batcher, now: float, on_leave: Listener) -> None:
    """Let first tokens appear and sequences leave at the end of a step."""
    for sequence in step.firsts:
        if sequence.first_s != sequence.first_s:
            sequence.first_s = now
    for sequence in step.leaving:
        batcher.free(sequence)
        sequence.last_s = now
        on_leave(sequence, now)


def steps_in(passed: float, first: float, growth: float) -> float:
    """Steps of a stretch that end within ``passed`` seconds, not rounded; arguments as in `steps_done`."""
    if growth <= 0.0:
        return passed / first
    half = first - 0.5 * growth
    return (sqrt(half * half + 2.0 * growth * max(passed, 0.0)) - half) / growth


def steps_done(passed: float, first: float, growth: float, limit: int) -> int:
    """Steps of a stretch, at least one and at most ``limit``, after which ``passed`` seconds are over.

    Args:
        passed: seconds from the start of the stretch.
        first: seconds of the first step.
        growth: difference between consecutive steps, s.
        limit: steps of the stretch.
    """
    # Correct a rounding error of one: the last step is the first that ends at or after that time.
    done = max(int(steps_in(passed, first, growth)) - 1, 0)
    while done < limit and done * first + growth * done * (done - 1) * 0.5 < passed:
        done += 1
    return max(done, 1)


@dataclass(frozen=True)
class ReplicaParts:
    """What a replica is made of.

    Attributes:
        options: scheduling options of the engine.
        scheduler: policy that fills steps.
        kvs: KV blocks of each attention rank.
        steps: step times.
        meter: records the steps.
        on_leave: called with a sequence and the time when its last token is there.
        stretches: sum decode stretches in closed form; else every step is a turn of the loop.
        copy_s: seconds to copy the KV of a token to or from the host.
    """

    options: EngineOptions
    scheduler: Scheduler
    kvs: list[PagedBlocks]
    steps: StepTimes
    meter: Meter
    on_leave: Listener
    stretches: bool = True
    copy_s: float = 0.0


class StepLoop(ABC):
    """One replica."""

    batchers: list[Batcher]
    """One for each attention rank, or for each micro batch of a pipeline."""

    def __init__(self, parts: ReplicaParts) -> None:
        self.scheduler, self.steps, self.meter = parts.scheduler, parts.steps, parts.meter
        self.on_leave, self.stretches, self.copy_s = parts.on_leave, parts.stretches, parts.copy_s
        self.next_s = inf
        """When the running step or stretch ends; inf while idle."""

    @abstractmethod
    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a sequence at a time to which the replica was advanced."""

    @abstractmethod
    def advance(self, until: float) -> None:
        """Run all steps that end before a time."""

    @abstractmethod
    def turn(self) -> None:
        """End the step that ends next, and start the one behind it."""

    @abstractmethod
    def use(self, steps: StepTimes, now: float) -> None:
        """Switch to other step times when the running step ends; the replica was advanced to ``now``."""

    def evict(self, sequence: Sequence, now: float) -> Evicted | None:
        """Remove a sequence, with its KV and its tokens so far; the replica was advanced to ``now``.

        Steps that are planned still compute for it. Its slot and blocks are free from the next plan on. The
        caller reads ``next_s`` again: a stretch of decode steps ends with the step under way.

        Returns:
            None where the sequence is not here, or its last token is planned.
        """
        self.settle(now)
        for rank, batcher in enumerate(self.batchers):
            waits = sequence in batcher.waiting
            tokens = batcher.evict(sequence)
            if tokens is not None:
                return Evicted(sequence, tokens, now if waits else max(self.planned_until(rank), now))
        return None

    def wake(self, now: float) -> None:
        """Plan again at a time, where blocks have come free from outside."""
        if self.next_s == inf and self.queue:
            self.next_s = now

    @abstractmethod
    def settle(self, now: float) -> None:
        """End a running stretch with the step under way, and bring all counters up to that step."""

    def catch_up(self, now: float) -> None:
        """`advance`, then `settle`."""
        self.advance(now)
        self.settle(now)

    @abstractmethod
    def uncounted(self, now: float) -> int:
        """Steps of a running stretch that have ended, and that counters do not show yet.

        `settle` counts them, but ends the stretch: later times then differ in their last bits.
        """

    @abstractmethod
    def planned_until(self, rank: int) -> float:
        """End of the last planned step of a rank or micro batch, s, after `settle`."""

    @property
    @abstractmethod
    def under_way(self) -> tuple[int, int, int, float] | None:
        """Query tokens, decodes, KV tokens and seconds of the running step; of a stretch, its first step."""

    @property
    @abstractmethod
    def planned(self) -> Iterable[PlannedStep | None]:
        """Steps that are planned and have not ended."""

    @cached_property
    def caches(self) -> tuple[PagedBlocks, ...]:
        """KV blocks of its ranks or micro batches, which may share them, each once."""
        return tuple({id(batcher.kv): batcher.kv for batcher in self.batchers}.values())

    @cached_property
    def queues(self) -> tuple[deque[Sequence], ...]:
        """Waiting sequences of its ranks or micro batches, which may share them, each once."""
        return tuple({id(batcher.waiting): batcher.waiting for batcher in self.batchers}.values())

    @property
    def running(self) -> int:
        """Slots in use."""
        return sum(batcher.running for batcher in self.batchers)

    @property
    def queue(self) -> int:
        """Sequences waiting."""
        return len(self.batchers[0].waiting)

    @property
    def load(self) -> int:
        """Sequences waiting and running."""
        return self.queue + self.running

    def cached(self, request: Request) -> int:
        """Most tokens of a request's prompt in a prefix cache of the replica."""
        return max(batcher.kv.cached(request) for batcher in self.batchers)

    def sequences(self) -> list[Sequence]:
        """Sequences running and waiting."""
        running = [sequence for batcher in self.batchers for sequence in batcher.sequences()]
        return [*running, *self.batchers[0].waiting]
