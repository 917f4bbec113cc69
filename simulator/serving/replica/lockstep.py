"""A replica of data-parallel attention ranks in lock-step: they share their experts.

Every rank has its own queue, slots and KV blocks. A step lasts as long as its longest rank; an idle rank
still takes part in the experts' exchange. While all ranks only decode, step times are computed at both ends
of a stretch and interpolated linearly.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

from simulator.serving.replica.base import ReplicaParts, StepLoop, finish, steps_done
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.meter import FULL
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.sequence import Sequence
from simulator.serving.steps.step_times import RankBatch, StepTimes

LONGEST_STRETCH = 64
"""Steps over which the time of a lock-step is interpolated linearly."""
WAITING_WEIGHT = 4
"""A waiting sequence counts as four running ones where a rank is chosen (vLLM's data-parallel balancer)."""
IDLE = RankBatch((), 0, 0)


class LockstepReplica(StepLoop):
    """A `Replica` with ``len(kvs)`` ranks in lock-step; a request goes to the least loaded rank."""

    def __init__(self, parts: ReplicaParts) -> None:
        super().__init__(parts)
        options = parts.options
        self.ranks = [Batcher(options, kv, deque(), options.max_sequences) for kv in parts.kvs]
        self.batchers = self.ranks
        self.ahead = options.asynchronous
        self._running: list[PlannedStep | None] = []
        self._planned: list[PlannedStep | None] = []
        self._start_s = self._first_s = self._growth_s = 0.0
        self._token_s = -1.0
        """End of the last step that decoded; negative after idling."""
        self._count = 1

    @property
    def queue(self) -> int:
        """Sequences waiting on all ranks."""
        return sum(len(rank.waiting) for rank in self.ranks)

    def sequences(self) -> list[Sequence]:
        """Sequences running and waiting, rank by rank."""
        return [sequence for rank in self.ranks for sequence in (*rank.sequences(), *rank.waiting)]

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a sequence on the least loaded rank."""
        loads = [WAITING_WEIGHT * len(rank.waiting) + rank.running for rank in self.ranks]
        rank = self.ranks[loads.index(min(loads))]
        if self._count > 1 and not self.scheduler.waits(rank):
            self._cut(now)
        rank.waiting.append(sequence)
        if self.next_s == inf:
            self.next_s, self._count = now, 0

    def use(self, steps: StepTimes, now: float) -> None:
        """Switch to other step times when the running step ends; the replica was advanced to ``now``."""
        if self._count > 1:
            self._cut(now)
        self.steps = steps

    def settle(self, now: float) -> None:
        """See `StepLoop.settle`."""
        if self._count < 2:
            return
        self._cut(now)
        earlier, self._count = self._count - 1, 1
        if not earlier:
            return
        end = self._start_s + self._lasting(earlier)
        self._record(end, earlier)
        self._start_s, self._first_s = end, self._first_s + earlier * self._growth_s
        following = self._planned if self.ahead else self._running
        for rank, step, after in zip(self.ranks, self._running, following, strict=True):
            if step is None or after is None:
                continue
            rank.extend(after, earlier)
            if after is not step:
                step.kv_tokens += earlier * step.decodes

    def uncounted(self, now: float) -> int:
        """See `StepLoop.uncounted`."""
        if self._count < 2:
            return 0
        return steps_done(now - self._start_s, self._first_s, self._growth_s, self._count) - 1

    def planned_until(self, rank: int) -> float:
        """See `StepLoop.planned_until`."""
        planned = self._planned
        if self.next_s == inf or not any(planned):
            return self.next_s if any(self._running) else 0.0
        return self.next_s + self._seconds(0, planned)

    @property
    def under_way(self) -> tuple[int, int, int, float] | None:
        """Query tokens, decodes and KV tokens of all ranks, and seconds of the running step."""
        if self.next_s == inf or not any(self._running):
            return None
        batch = [step for step in self._running if step is not None]
        decodes, kv_tokens = sum(step.decodes for step in batch), sum(step.kv_tokens for step in batch)
        seconds = self._first_s if self._count > 1 else self.next_s - self._start_s
        return decodes + sum(step.prompt for step in batch), decodes, kv_tokens, max(seconds, 1e-9)

    @property
    def planned(self) -> Iterable[PlannedStep | None]:
        """See `StepLoop.planned`."""
        return *self._running, *self._planned

    def _cut(self, now: float) -> None:
        """End the running stretch with the step that is under way."""
        count = steps_done(now - self._start_s, self._first_s, self._growth_s, self._count)
        if count < self._count:
            self._count = count
            self.next_s = self._start_s + self._lasting(count)

    def advance(self, until: float) -> None:
        """Run everything that ends before a time."""
        while self.next_s < until:
            self.turn()

    def turn(self) -> None:
        """End the running step or stretch of all ranks, and start the next."""
        now = self.next_s
        if self._running:
            if self._count > 1:
                for rank, step in zip(
                    self.ranks, self._planned if self.ahead else self._running, strict=True
                ):
                    if step is not None:
                        rank.extend(step, self._count - 1)
            self._record(now, self._count)
            for rank, step in zip(self.ranks, self._running, strict=True):
                if step is not None and (step.firsts or step.leaving):
                    finish(step, rank, now, self.on_leave)
        if self.ahead:
            current = self._planned if any(self._planned) else self._plan(now)
            self._planned = self._plan(now) if any(current) else []
        else:
            current = self._plan(now)
        if not any(current):
            self._running, self.next_s, self._count = [], inf, 1
            self._token_s = -1.0
            return
        self._running = current
        self._launch(now)

    def _plan(self, now: float) -> list[PlannedStep | None]:
        return [self.scheduler.plan(rank, now) for rank in self.ranks]

    def _launch(self, now: float) -> None:
        running = self._running
        seconds = self._seconds(0)
        more = self._quiet() if self.stretches else 0
        count = min(more + 1, LONGEST_STRETCH)
        self._start_s, self._count, self._first_s, self._growth_s = now, count, seconds, 0.0
        if count > 1:
            self._growth_s = (self._seconds(count - 1) - seconds) / (count - 1)
        copied = sum(step.copied for step in running if step is not None)
        read_s = max((step.read_s for step in running if step is not None), default=0.0)
        self.next_s = now + max(self._lasting(count) + copied * self.copy_s, read_s)

    def _lasting(self, count: int) -> float:
        return count * self._first_s + self._growth_s * count * (count - 1) * 0.5

    def _seconds(self, later: int, steps: list[PlannedStep | None] | None = None) -> float:
        """Seconds of ``steps`` (the running ones), or of the decode step ``later`` steps after them."""
        return self.steps.lockstep(
            [
                IDLE
                if step is None
                else RankBatch(step.chunks, step.decodes, step.kv_tokens + later * step.decodes)
                for step in (self._running if steps is None else steps)
            ]
        )

    def _quiet(self) -> int:
        """Steps that can follow the running one with equal decodes on every rank."""
        following = self._planned if self.ahead else self._running
        if not following:
            return 0
        steps = LONGEST_STRETCH
        for rank, step, after in zip(self.ranks, self._running, following, strict=True):
            if (step is None) != (after is None) or (step is None and rank.waiting):
                return 0
            if step is None or after is None:
                continue
            for planned in (step, after):
                if planned.firsts or planned.chunks or planned.leaving or planned.preempted:
                    return 0
                if planned.decodes != step.decodes or planned.until_s < inf:
                    return 0
            steps = min(steps, rank.quiet())
        return steps

    def _record(self, now: float, count: int) -> None:
        """Keep the row of the running step of all ranks, or of ``count`` steps from it on."""
        decodes = kv_tokens = prompt = firsts = slots = waiting = free = 0
        for step in self._running:
            if step is not None:
                prompt += step.prompt
                firsts += len(step.firsts)
                decodes += step.decodes
                kv_tokens += step.kv_tokens
        for rank in self.ranks:
            slots += rank.running
            waiting += len(rank.waiting)
            free += rank.kv.free
        since = self._token_s if decodes and self._token_s > 0.0 else self._start_s
        if decodes:
            self._token_s = now
        self.meter.cells += (
            self._start_s, now, since, count, decodes, kv_tokens, prompt, firsts, slots, waiting, free,
        )  # fmt: skip
        if len(self.meter.cells) >= FULL:
            self.meter.add_up()
