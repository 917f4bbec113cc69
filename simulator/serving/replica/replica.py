"""One replica: it steps independently from arrival to arrival, without a shared clock.

Consecutive decode steps with a fixed batch form one *stretch*, summed in closed form: k steps, the first of q
seconds and each g longer than the step before, take k q + g k (k - 1) / 2. An arrival that could be admitted
cuts the stretch at the end of the step that it falls into.

At one instant arrivals come before the end of a step, so the schedule made there sees them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf, sqrt

from simulator.serving.question.options import EngineOptions
from simulator.serving.replica.batcher import Batcher, PlannedStep
from simulator.serving.replica.kv.paged import PagedBlocks
from simulator.serving.replica.meter import FULL, Meter
from simulator.serving.replica.schedulers import Scheduler
from simulator.serving.replica.sequence import Sequence
from simulator.serving.steps.step_times import StepTimes
from simulator.serving.workload.request import Request

SHORTEST_STRETCH = 2
"""Minimum steps of a stretch that is summed in closed form."""

Listener = Callable[[Sequence, float], None]


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


def steps_done(passed: float, first: float, growth: float, most: int) -> int:
    """Steps of a stretch, at least one and at most ``most``, after which ``passed`` seconds are over.

    Args:
        passed: seconds from the start of the stretch.
        first: seconds of the first step.
        growth: difference between consecutive steps, s.
        most: steps of the stretch.
    """
    # Correct a rounding error of one: the last step is the first that ends at or after that time.
    done = max(int(steps_in(passed, first, growth)) - 1, 0)
    while done < most and done * first + growth * done * (done - 1) * 0.5 < passed:
        done += 1
    return max(done, 1)


class QueueView:
    """State of a replica that routers read: queue, slots and cache."""

    waiting: deque[Sequence]
    kv: PagedBlocks
    batchers: list[Batcher]

    @property
    def running(self) -> int:
        """Slots in use."""
        raise NotImplementedError

    @property
    def load(self) -> int:
        """Sequences waiting and running."""
        return len(self.waiting) + self.running

    @property
    def queue(self) -> int:
        """Sequences waiting."""
        return len(self.waiting)

    def cached(self, request: Request) -> int:
        """Tokens of a request's prompt in the prefix cache."""
        return self.kv.cached(request)

    def sequences(self) -> list[Sequence]:
        """Sequences waiting and running."""
        return [*(one for batcher in self.batchers for one in batcher.sequences()), *self.waiting]


class Replica(QueueView):
    """A replica of one rank (tensor-parallel devices count as one) without pipeline stages.

    Args:
        options: scheduling options of the engine.
        scheduler: policy that fills steps.
        kv: KV blocks of the replica.
        steps: step times.
        meter: records the steps.
        on_leave: called with a sequence and the time when its last token is there.
        stretches: sum decode stretches in closed form; else every step is a turn of the loop.
        copy_s: seconds to copy the KV of a token to or from the host.
    """

    def __init__(
        self,
        options: EngineOptions,
        scheduler: Scheduler,
        kv: PagedBlocks,
        steps: StepTimes,
        meter: Meter,
        on_leave: Listener,
        stretches: bool = True,
        copy_s: float = 0.0,
    ) -> None:
        self.steps, self.meter, self.on_leave = steps, meter, on_leave
        self.waiting: deque[Sequence] = deque()
        self.kv = kv
        self.batcher = Batcher(options, kv, self.waiting, options.max_sequences)
        self.batchers = [self.batcher]
        self.scheduler = scheduler
        self.ahead = options.asynchronous
        self.stretches = stretches
        self.copy_s = copy_s
        self.next_s = inf
        """When the running step or stretch ends; inf while idle."""
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

    @property
    def under_way(self) -> tuple[int, int, int, float] | None:
        """Query tokens, decodes, KV tokens and seconds of the running step; of a stretch, its first step."""
        step = self._running
        if step is None or self.next_s == inf:
            return None
        seconds = self._first_s if self._count > 1 else self.next_s - self._start_s
        return step.decodes + step.prompt, step.decodes, step.kv_tokens, max(seconds, 1e-9)

    def turn(self) -> None:
        """End the running step or stretch, and start the next."""
        self.advance(inf, once=True)

    def advance(self, until: float, once: bool = False) -> None:
        """Run all steps that end before a time; with ``once``, only the next to end."""
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
                now += self._seconds(step)
            if len(cells) >= FULL:
                meter.add_up()
            if once:
                break
        self.next_s = now

    def _seconds(self, step: PlannedStep) -> float:
        """Seconds of the step to launch, or of the stretch that it begins."""
        decodes = step.decodes
        if decodes and self.stretches and not (step.chunks or step.leaving or step.preempted):
            more = self._quiet(step)
            if more + 1 >= SHORTEST_STRETCH:
                first, growth, count = self.steps.stretch(decodes, step.kv_tokens)
                if count > more:
                    count = more + 1
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
        if planned is None or planned.chunks or planned.leaving or planned.preempted:
            return 0
        if planned.decodes != step.decodes:
            return 0
        return self.batcher.quiet()

    def _cut(self, now: float) -> None:
        """End the running stretch with the step that is under way."""
        first, growth = self._first_s, self._growth_s
        count = steps_done(now - self._start_s, first, growth, self._count)
        if count < self._count:
            self._count = count
            self.next_s = self._start_s + count * first + growth * count * (count - 1) * 0.5
