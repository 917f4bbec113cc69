"""Conservation laws of a replica, checked whenever its scheduler plans a step.

Off by default, and free where off: `guard` replaces the scheduler of one replica. Inside of `guarding` all
replicas that a run builds are guarded. Tests run so.

Laws:
    blocks: free blocks, private blocks of sequences and shared units in use add up to all blocks.
    slots: a rank's count of running sequences is the number of its sequences.
    tokens: the decodes' KV is the sum over their sequences, a first token follows a whole prompt, and a
        sequence leaves with all of its output.
    time: steps, first tokens and last tokens come in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import Any, ClassVar
from weakref import ReferenceType, ref

from pydantic import PrivateAttr

from simulator.serving.replica.base import StepLoop
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.schedulers import Scheduler
from simulator.serving.replica.sequence import Sequence

_GUARDING: ContextVar[bool] = ContextVar("guarding", default=False)
IN_FLIGHT = 2
"""Most steps of a rank between their plan and their end: one runs, one is planned ahead."""


class ConservationError(AssertionError):
    """A run created or lost KV blocks, slots or tokens, or went back in time."""


@contextmanager
def guarding() -> Iterator[None]:
    """Guard every replica that is built inside."""
    token = _GUARDING.set(True)
    try:
        yield
    finally:
        _GUARDING.reset(token)


def guarded() -> bool:
    """Whether replicas built now are guarded."""
    return _GUARDING.get()


def guard(loop: StepLoop) -> StepLoop:
    """Check a replica from now on; returns it."""
    leave = loop.on_leave

    def leave_checked(sequence: Sequence, now: float) -> None:
        _law(sequence.generated == sequence.output, now, "output tokens", sequence.generated, sequence.output)
        _law(sequence.scheduled_s <= sequence.first_s <= now, now, "first token", sequence.first_s, now)
        leave(sequence, now)

    loop.on_leave = leave_checked
    loop.scheduler = GuardedScheduler(loop.scheduler, loop)
    return loop


class GuardedScheduler(Scheduler):
    """Another scheduler's steps, with the laws checked after each.

    Raises:
        ConservationError: a law is broken.
    """

    name: ClassVar[str] = "guarded"
    rule: ClassVar[str] = "those of the scheduler inside"
    source: ClassVar[str] = "this project"
    _inner: Scheduler = PrivateAttr()
    _loop: ReferenceType[StepLoop] = PrivateAttr()
    _now: float = PrivateAttr(-inf)
    _planned: dict[int, deque[PlannedStep]] = PrivateAttr(default_factory=dict)

    def __init__(self, inner: Scheduler, loop: StepLoop, **fields: Any) -> None:
        super().__init__(**fields)
        # A weak reference: the replica owns its scheduler, and is freed without the collector.
        self._inner, self._loop = inner, ref(loop)

    def fill(self, batcher: Batcher, step: PlannedStep, now: float) -> None:
        """See `Scheduler.fill`."""
        self._inner.fill(batcher, step, now)

    def waits(self, batcher: Batcher) -> bool:
        """See `Scheduler.waits`."""
        return self._inner.waits(batcher)

    def plan(self, batcher: Batcher, now: float) -> PlannedStep | None:
        """See `Scheduler.plan`."""
        step = self._inner.plan(batcher, now)
        _law(now >= self._now, now, "time of the step", now, self._now)
        self._now = now
        if step is not None:
            self._planned.setdefault(id(batcher), deque(maxlen=IN_FLIGHT)).append(step)
            computed = sum(tokens for tokens, _ in step.chunks)
            _law(step.prompt == computed, now, "prompt tokens of the step", step.prompt, computed)
            for sequence in step.firsts:
                _law(
                    sequence.computed == sequence.target,
                    now,
                    "computed prompt tokens",
                    sequence.computed,
                    sequence.target,
                )
        self._check(batcher, now)
        return step

    def _check(self, batcher: Batcher, now: float) -> None:
        """The laws of a rank's counters, and of the blocks that it shares with other micro batches."""
        inside = self._sequences(batcher)
        decoding = [sequence for sequence in inside if sequence.end_step > batcher.steps]
        tokens = sum(_kv_tokens(sequence, batcher.steps) for sequence in decoding)
        _law(batcher.running == len(inside), now, "running sequences", batcher.running, len(inside))
        _law(batcher.decodes == len(decoding), now, "decodes", batcher.decodes, len(decoding))
        _law(batcher.kv_tokens == tokens, now, "KV tokens of decodes", batcher.kv_tokens, tokens)
        kv, loop = batcher.kv, self._loop()
        sharers = [rank for rank in loop.batchers if rank.kv is kv] if loop is not None else [batcher]
        private = sum(_private(rank, sequence) for rank in sharers for sequence in self._sequences(rank))
        _law(0 <= kv.free <= kv.total, now, "free blocks", kv.free, kv.total)
        every = kv.free + kv.shared + private
        _law(every == kv.total, now, "free, shared and private blocks", every, kv.total)

    def _sequences(self, batcher: Batcher) -> list[Sequence]:
        """Sequences in slots; a preemption drops those about to leave from `Batcher.admitted`."""
        leaving = [sequence for step in self._planned.get(id(batcher), ()) for sequence in step.leaving]
        inside = {id(sequence): sequence for sequence in batcher.sequences()}
        inside.update({id(sequence): sequence for sequence in leaving if sequence.end_step >= 0})
        return list(inside.values())


def _kv_tokens(sequence: Sequence, steps: int) -> int:
    """KV tokens of a sequence that decodes, or that waits for the end of its last step."""
    return sequence.join_kv + min(steps, sequence.end_step) - sequence.join_step


def _private(batcher: Batcher, sequence: Sequence) -> int:
    """Blocks of a sequence outside of shared units."""
    beside = batcher.beside(sequence)
    if sequence.end_step < 0:
        return sequence.blocks + beside
    tokens = _kv_tokens(sequence, batcher.steps)
    if batcher.reserves:
        tokens = sequence.prompt + sequence.output
    return batcher.kv.blocks(tokens) - batcher.kv.in_units(sequence) + beside


def _law(holds: bool, now: float, what: str, actual: float, expected: float) -> None:
    if not holds:
        raise ConservationError(f"at {now:.9g} s: {what}: {actual}, expected {expected}")
