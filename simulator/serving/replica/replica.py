"""One replica: it steps independently from arrival to arrival, without a shared clock.

Consecutive decode steps with a fixed batch form one *stretch*, summed in closed form: k steps, the first of q
seconds and each g longer than the step before, take k q + g k (k - 1) / 2. An arrival that could be admitted
cuts the stretch at the end of the step that it falls into.
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
from simulator.serving.steps.step_times import StepTimes
from simulator.serving.steps.table import IterationTable

SHORTEST_STRETCH = 2
"""Minimum steps of a stretch that is summed in closed form."""


class Replica(StepLoop):
    """A replica of one rank (tensor-parallel devices count as one) without pipeline stages."""

    def __init__(self, parts: ReplicaParts) -> None:
        super().__init__(parts)
        self.waiting: deque[Sequence] = deque()
        options, (self.kv,) = parts.options, parts.kvs
        self.batcher = Batcher(options, self.kv, self.waiting, options.max_sequences)
        self.batchers = [self.batcher]
        self.ahead = options.asynchronous
        self._running: PlannedStep | None = None
        self._planned: PlannedStep | None = None
        self._start_s = 0.0
        self._count = 1
        """Steps of the running stretch."""
        self._first_s = self._growth_s = 0.0
        self._token_s = -1.0
        """End of the last step that decoded; negative after idling."""

    @property
    def running(self) -> int:
        """Slots in use."""
        return self.batcher.running

    @property
    def load(self) -> int:
        """Sequences waiting and running."""
        return len(self.waiting) + self.batcher.running

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a sequence at a time to which the replica was advanced."""
        if self._count > 1 and not self.scheduler.waits(self.batcher):
            self._cut(now)
        self.waiting.append(sequence)
        if self.next_s == inf:
            # Plan after all arrivals of this instant.
            self.next_s = now
            self._count = 0

    def use(self, steps: StepTimes, now: float) -> None:
        """Switch to other step times when the running step ends; the replica was advanced to ``now``."""
        if self._count > 1:
            self._cut(now)
        self.steps = steps

    def settle(self, now: float) -> None:
        """See `StepLoop.settle`."""
        step, planned = self._running, self._planned
        if step is None or self._count < 2:
            return
        self._cut(now)
        earlier, self._count = self._count - 1, 1
        if not earlier:
            return
        first, growth = self._first_s, self._growth_s
        end = self._start_s + earlier * first + growth * earlier * (earlier - 1) * 0.5
        since = self._token_s if self._token_s > 0.0 else self._start_s
        self.meter.cells += (
            self._start_s, end, since, earlier, step.decodes, step.kv_tokens, 0,
            0, self.batcher.running, len(self.waiting), self.kv.free,
        )  # fmt: skip
        self._start_s = self._token_s = end
        if planned is not None:
            self.batcher.extend(planned, earlier)
            step.kv_tokens += earlier * step.decodes
        else:
            self.batcher.extend(step, earlier)

    def uncounted(self, now: float) -> int:
        """See `StepLoop.uncounted`."""
        if self._running is None or self._count < 2:
            return 0
        return steps_done(now - self._start_s, self._first_s, self._growth_s, self._count) - 1

    def planned_until(self, rank: int) -> float:
        """See `StepLoop.planned_until`."""
        planned = self._planned
        if self.next_s == inf or planned is None:
            return self.next_s if self._running is not None else 0.0
        return self.next_s + self.steps.step(planned.chunks, planned.decodes, planned.kv_tokens)

    @property
    def under_way(self) -> tuple[int, int, int, float] | None:
        """Query tokens, decodes, KV tokens and seconds of the running step; of a stretch, its first step."""
        step = self._running
        if step is None or self.next_s == inf:
            return None
        seconds = self._first_s if self._count > 1 else self.next_s - self._start_s
        return step.decodes + step.prompt, step.decodes, step.kv_tokens, max(seconds, 1e-9)

    @property
    def planned(self) -> Iterable[PlannedStep | None]:
        """See `StepLoop.planned`."""
        return self._running, self._planned

    def turn(self) -> None:
        """End the running step or stretch, and start the next."""
        self.advance(inf, once=True)

    def catch_up(self, now: float) -> None:
        """See `StepLoop.catch_up`."""
        self.advance(now, cut=now if type(self.steps) is IterationTable else inf)
        self.settle(now)

    def advance(self, until: float, once: bool = False, cut: float = inf) -> None:
        """Run all steps that end before a time; with ``once``, only the next to end.

        A step that is under way at ``cut`` begins no stretch: the caller settles then.
        """
        if self.next_s >= until:
            return
        batcher, kv, waiting, meter, ahead = self.batcher, self.kv, self.waiting, self.meter, self.ahead
        cells, now, plan = meter.cells, self.next_s, self.scheduler.plan
        while now < until:
            step = self._running
            if step is not None:
                decodes, since = step.decodes, self._token_s
                if decodes:
                    self._token_s = now
                    if since <= 0.0:
                        since = self._start_s
                cells += (
                    self._start_s, now, since, self._count, decodes, step.kv_tokens, step.prompt,
                    len(step.firsts), batcher.running, len(waiting), kv.free,
                )  # fmt: skip
                if self._count > 1:
                    batcher.extend(self._planned if ahead else step, self._count - 1)  # type: ignore[arg-type]
                if step.firsts or step.leaving:
                    finish(step, batcher, now, self.on_leave)
            if ahead:
                step = self._planned or plan(batcher, now)
                self._planned = None if step is None else plan(batcher, now)
            else:
                step = plan(batcher, now)
            self._running = step
            if step is None:
                now, self._count, self._token_s = inf, 1, -1.0
            else:
                self._start_s = now
                now += self._seconds(step, cut)
            if len(cells) >= FULL:
                meter.add_up()
            if once:
                break
        self.next_s = now

    def _seconds(self, step: PlannedStep, cut: float = inf) -> float:
        """Seconds of the step to launch, or of the stretch that it begins."""
        decodes = step.decodes
        if decodes and self.stretches and not (step.firsts or step.chunks or step.leaving or step.preempted):
            if cut < inf and not (step.copied or step.read_s):
                # To the bit the first step of the stretch that `settle` would cut to it.
                seconds = self.steps.step((), decodes, step.kv_tokens)
                if cut - self._start_s <= seconds:
                    self._count = 1
                    return seconds
            more = self._quiet(step)
            if more + 1 >= SHORTEST_STRETCH:
                first, growth, count = self.steps.stretch(decodes, step.kv_tokens)
                if count > more:
                    count = more + 1
                until_s = step.until_s
                if self._planned is not None and self._planned.until_s < until_s:
                    until_s = self._planned.until_s
                if until_s < inf:
                    count = min(count, steps_done(until_s - self._start_s, first, growth, count))
                self._count, self._first_s, self._growth_s = count, first, growth
                return count * first + growth * count * (count - 1) * 0.5
        self._count = 1
        seconds = self.steps.step(step.chunks, decodes, step.kv_tokens)
        if step.copied:
            seconds += step.copied * self.copy_s
        return step.read_s if step.read_s > seconds else seconds

    def _quiet(self, step: PlannedStep) -> int:
        """Number of steps that can follow the step to launch with the same decodes."""
        if not self.ahead:
            return self.batcher.quiet()
        planned = self._planned
        if planned is None or planned.firsts or planned.chunks or planned.leaving or planned.preempted:
            return 0
        if planned.decodes != step.decodes:
            return 0
        return self.batcher.quiet()

    def _cut(self, now: float) -> None:
        """End the running stretch with the step that is under way."""
        first, growth = self._first_s, self._growth_s
        if now - self._start_s <= first:
            # In its first step, as where a router looks at many replicas.
            self._count, self.next_s = 1, self._start_s + first
            return
        count = steps_done(now - self._start_s, first, growth, self._count)
        if count < self._count:
            self._count = count
            self.next_s = self._start_s + count * first + growth * count * (count - 1) * 0.5
