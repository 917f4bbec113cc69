"""A replica with pipeline stages: as many micro batches in flight as stages, sharing them in turn.

A micro batch whose step takes d seconds holds each of the p stages for d / p. It enters the first stage when
its last step has ended and the stage is free, and leaves the last one no earlier than d / p after the micro
batch before it. Because a micro batch takes equally long on every stage, it can be held up only at the last
one, so two numbers a micro batch (entry, exit) give the schedule of all stages exactly.

While all micro batches only decode, the longest one, M, runs unhindered, and the others leave behind it:
M exits d_M after its last exit, each follower its d / p after the one before. Rounds then sum in closed form.
"""

from __future__ import annotations

from collections import deque
from math import inf

from simulator.serving.batcher import Batcher, Step
from simulator.serving.kv.paged import PagedBlocks
from simulator.serving.meter import Meter
from simulator.serving.options import Options
from simulator.serving.replica import Listener, QueueView, finish
from simulator.serving.schedulers import Scheduler
from simulator.serving.sequence import Sequence
from simulator.serving.step_times import StepTimes

SAME_S = 1e-12
"""Times closer than this are equal."""
SHORTEST_ROUNDS = 2
"""Rounds from which a stretch is summed in closed form."""


class Lane:
    """One micro batch in flight: its sequences, and when its running step enters and leaves the stages."""

    __slots__ = (
        "batcher",
        "count",
        "enter_s",
        "exit_s",
        "growth_s",
        "ready_s",
        "running",
        "seconds",
        "valid",
    )

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self.running: Step | None = None
        self.count = 1
        """Steps since the running one was planned."""
        self.ready_s = 0.0
        """When its step before those was over, or it began after idling."""
        self.enter_s = 0.0
        self.exit_s = inf
        self.seconds = self.growth_s = 0.0
        """Of the running step, and how much longer each later one of a stretch is."""
        self.valid = 0
        """Steps for which the growth holds; 0 where the step cannot begin a stretch."""

    def later(self, steps: int) -> float:
        """Seconds of the step that comes so many steps later."""
        return self.seconds + steps * self.growth_s

    def summed(self, steps: int) -> float:
        """Seconds of the next ``steps`` steps together."""
        return steps * self.seconds + self.growth_s * steps * (steps + 1) * 0.5


class PipelinedReplica(QueueView):
    """As `Replica`, with pipeline stages. Steps are scheduled when a micro batch has ended (never ahead)."""

    def __init__(
        self,
        options: Options,
        scheduler: Scheduler,
        kv: PagedBlocks,
        steps: StepTimes,
        meter: Meter,
        on_leave: Listener,
        stretches: bool = True,
        copy_s: float = 0.0,
    ) -> None:
        self.steps, self.meter, self.on_leave, self.copy_s = steps, meter, on_leave, copy_s
        self.stages = steps.stages
        self.waiting: deque[Sequence] = deque()
        self.kv = kv
        slots = max(options.max_sequences // self.stages, 1)
        self.lanes = [Lane(Batcher(options, scheduler, kv, self.waiting, slots)) for _ in range(self.stages)]
        self.batchers = [lane.batcher for lane in self.lanes]
        self.scheduler = scheduler
        self.stretches = stretches
        self.next_s = inf
        self._order: deque[Lane] = deque()
        """Lanes under way, in the order in which they leave."""
        self._free_s = 0.0
        """When the first stage is free."""
        self._last_exit_s = 0.0
        self._rounds = 0
        """Rounds of the running stretch; the lanes' times are those of its round 0."""
        self._longest = 0
        """Place of the longest lane in the order, during a stretch."""
        self._busy_from_s = 0.0

    @property
    def running(self) -> int:
        """Slots in use."""
        return sum(lane.batcher.running for lane in self.lanes)

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a sequence at a time to which the replica was advanced."""
        if self._rounds and not all(self.scheduler.waits(lane.batcher) for lane in self.lanes):
            self._commit(now)
        self.waiting.append(sequence)
        if self.next_s > now and len(self._order) < len(self.lanes):
            self.next_s = now

    def advance(self, until: float) -> None:
        """Run everything that ends before a time."""
        while self.next_s < until:
            self.turn()

    def turn(self) -> None:
        """End what ends next, and launch idle lanes."""
        now = self.next_s
        if self._rounds:
            self._commit(now)
        order = self._order
        if order and order[0].exit_s <= now:
            lane = order.popleft()
            step = lane.running
            lane.running = None
            if step is not None:
                self._record(lane, step, now)
                if step.firsts or step.leaving:
                    finish(step, lane.batcher, now, self.on_leave)
            self._launch(lane, now)
        for lane in self.lanes:
            if lane.running is None and self.waiting:
                self._launch(lane, now)
        if not order:
            self.next_s = inf
            self.meter.idle()
            return
        self.next_s = order[0].exit_s
        if self.stretches:
            self._try_stretch()

    def _launch(self, lane: Lane, now: float) -> None:
        step = lane.batcher.plan(now)
        if step is None:
            return
        chunks, decodes, kv_tokens = step.chunks, step.decodes, step.kv_tokens
        if self.stretches and decodes and not (chunks or step.leaving or step.preempted):
            lane.seconds, lane.growth_s, lane.valid = self.steps.stretch(decodes, kv_tokens)
        else:
            lane.seconds, lane.growth_s, lane.valid = self.steps.step(chunks, decodes, kv_tokens), 0.0, 0
            lane.seconds += step.copied * self.copy_s
        share = lane.seconds / self.stages
        if not self._order:
            self._busy_from_s = now
        lane.running, lane.ready_s = step, now
        lane.enter_s = max(now, self._free_s)
        lane.exit_s = max(lane.enter_s + lane.seconds, self._last_exit_s + share)
        self._free_s, self._last_exit_s = lane.enter_s + share, lane.exit_s
        self._order.append(lane)

    def _record(self, lane: Lane, step: Step, now: float) -> None:
        """Count a lane's steps; of the replica's time they take what passed since another lane's ended."""
        start, self._busy_from_s = self._busy_from_s, now
        running, kv = self.running, self.kv
        self.meter.add(
            step, start, now, lane.count, running, len(self.waiting), kv.total - kv.free, lane.ready_s
        )
        lane.count = 1

    # Rounds in closed form

    def _try_stretch(self) -> None:
        """Begin a stretch of rounds where all lanes only decode and the longest leads."""
        order = self._order
        rounds, decodes = 1 << 60, 0
        for lane in order:
            if lane.valid < 2:
                return
            rounds = min(rounds, lane.valid - 1, lane.batcher.quiet())
            if rounds < SHORTEST_ROUNDS:
                return
            decodes += lane.batcher.decodes
        if self.waiting and any(lane.batcher.running < lane.batcher.slots for lane in self.lanes):
            return
        block = self.lanes[0].batcher.block_tokens
        if decodes * (rounds // block + 1) > self.kv.free and not order[0].batcher.reserves:
            return
        longest = max(range(len(order)), key=lambda index: order[index].later(1))
        if any(lane.later(k) > order[longest].later(k) for lane in order for k in (0, 1, rounds)):
            return
        if not self._leads(longest):
            return
        self._rounds, self._longest = rounds, longest
        self.next_s = self._exit(0, rounds)

    def _leads(self, longest: int) -> bool:
        """Whether the next round, step by step, is the closed form's."""
        free, last = self._free_s, self._last_exit_s
        for index, lane in enumerate(self._order):
            seconds = lane.later(1)
            share = seconds / self.stages
            enter = max(lane.exit_s, free)
            leave = max(enter + seconds, last + share)
            if abs(leave - self._exit(index, 1, longest)) > SAME_S * max(leave, 1.0):
                return False
            free, last = enter + share, leave
        return True

    def _exit(self, place: int, rounds: int, longest: int | None = None) -> float:
        """When the lane at a place of the order ends its step of a round; round 0 is under way."""
        order = self._order
        if rounds == 0:
            return order[place].exit_s
        at = self._longest if longest is None else longest
        lead = order[at]
        shares = 0.0
        if place >= at:
            time = lead.exit_s + lead.summed(rounds)
            for k in range(at + 1, place + 1):
                shares += order[k].later(rounds)
            return time + shares / self.stages
        before = rounds - 1
        if before == 0:
            time = order[-1].exit_s
        else:
            time = lead.exit_s + lead.summed(before)
            for k in range(at + 1, len(order)):
                shares += order[k].later(before)
        for k in range(place + 1):
            shares += order[k].later(rounds)
        return time + shares / self.stages

    def _rounds_until(self, now: float) -> int:
        """The first round whose first exit is at or after a time."""
        low, high = 0, self._rounds
        while low < high:
            middle = (low + high) // 2
            if self._exit(0, middle) >= now:
                high = middle
            else:
                low = middle + 1
        return low

    def _commit(self, now: float) -> None:
        """Let every lane have run the rounds whose steps began before a time; the order starts over."""
        order, first = self._order, self._rounds_until(now)
        rounds = [first] * len(order)
        if first:
            for place in range(1, len(order)):
                rounds[place] = first - (self._exit(place, first - 1) >= now)
        times = [(self._enter(place, count), self._exit(place, count)) for place, count in enumerate(rounds)]
        later = sum(count == first for count in rounds)
        for lane, count, (enter, leave) in zip(order, rounds, times, strict=True):
            step = lane.running
            if not count or step is None:
                continue
            lane.batcher.extend(step, count)
            lane.seconds, lane.enter_s, lane.exit_s = lane.later(count), enter, leave
            lane.valid = 0 if step.leaving else lane.valid - count
            lane.count += count
        if later < len(order):
            order.rotate(-later)
        last = order[-1]
        self._last_exit_s, self._free_s = last.exit_s, last.enter_s + last.seconds / self.stages
        self._rounds = 0
        self.next_s = order[0].exit_s

    def _enter(self, place: int, rounds: int) -> float:
        """When the lane at a place enters its step of a round: one share after the lane before it."""
        order, at = self._order, self._longest
        if rounds == 0:
            return order[place].enter_s
        if place >= at:
            first, time = at, self._exit(at, rounds - 1)
        else:
            last = order[-1]
            before = last.later(rounds - 1) / self.stages
            first, time = 0, max(self._exit(0, rounds - 1), self._enter(len(order) - 1, rounds - 1) + before)
        for k in range(first, place):
            share = order[k].later(rounds) / self.stages
            time = max(self._exit(k + 1, rounds - 1), time + share)
        return time
