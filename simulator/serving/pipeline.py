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
from simulator.serving.replica import Listener, QueueView, finish, steps_done
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
        """End of the step before those, or start after idling."""
        self.enter_s = 0.0
        self.exit_s = inf
        self.seconds = self.growth_s = 0.0
        """Of the running step, and how much longer each later one of a stretch is."""
        self.valid = 0
        """Steps for which the growth holds; 0 where the step cannot begin a stretch."""


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
        """Time at which the first stage is free."""
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
        """End the lane step that ends next, and launch idle lanes."""
        now = self.next_s
        if self._rounds:
            self._commit(now)
        order = self._order
        if order and order[0].exit_s <= now:
            lane = order.popleft()
            step = lane.running
            if step is not None:
                self._record(lane, step, now)
                if step.firsts or step.leaving:
                    finish(step, lane.batcher, now, self.on_leave)
            if lane.valid > 2 and step is not None and not self.waiting and lane.batcher.again(step):
                # The same decodes once more, on the same line of the table.
                lane.seconds += lane.growth_s
                lane.valid = 0 if step.leaving else lane.valid - 1
                self._enter(lane, now)
            else:
                lane.running = None
                self._launch(lane, now)
        if self.waiting and len(order) < self.stages:
            for lane in self.lanes:
                if lane.running is None and self.waiting:
                    self._launch(lane, now)
        if not order:
            self.next_s = inf
            self.meter.idle()
            return
        self.next_s = order[0].exit_s
        if order[0].valid > SHORTEST_ROUNDS and order[-1].valid > SHORTEST_ROUNDS:
            self._try_stretch()

    def _launch(self, lane: Lane, now: float) -> None:
        step = lane.batcher.plan(now)
        if step is None:
            return
        chunks, decodes, kv_tokens = step.chunks, step.decodes, step.kv_tokens
        if self.stretches and decodes and not (chunks or step.leaving or step.preempted):
            seconds, lane.growth_s, lane.valid = self.steps.stretch(decodes, kv_tokens)
        else:
            seconds, lane.growth_s, lane.valid = self.steps.step(chunks, decodes, kv_tokens), 0.0, 0
            if step.copied:
                seconds += step.copied * self.copy_s
            if step.read_s > seconds:
                seconds = step.read_s
        lane.running, lane.seconds = step, seconds
        self._enter(lane, now)

    def _enter(self, lane: Lane, now: float) -> None:
        """Let a lane's next step into the first stage."""
        seconds, order = lane.seconds, self._order
        share = seconds / self.stages
        if not order:
            self._busy_from_s = now
        enter, last = self._free_s, self._last_exit_s + share
        if enter < now:
            enter = now
        leave = enter + seconds
        if leave < last:
            leave = last
        lane.ready_s = now
        lane.enter_s, lane.exit_s = enter, leave
        self._free_s, self._last_exit_s = enter + share, leave
        order.append(lane)

    def _record(self, lane: Lane, step: Step, now: float) -> None:
        """Count a lane's steps; of the replica's time they take what passed since another lane's ended."""
        start, self._busy_from_s = self._busy_from_s, now
        running, kv = 0, self.kv
        for batcher in self.batchers:
            running += batcher.running
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
            if lane.valid <= SHORTEST_ROUNDS:
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
        longest, most = 0, -1.0
        for place, lane in enumerate(order):
            seconds = lane.seconds + lane.growth_s
            if seconds > most:
                longest, most = place, seconds
        lead = order[longest]
        first, last = lead.seconds, lead.seconds + rounds * lead.growth_s
        for lane in order:
            seconds, growth = lane.seconds, lane.growth_s
            if seconds > first or seconds + growth > most or seconds + rounds * growth > last:
                return
        self._longest = longest
        if self._leads():
            self._rounds = rounds
            self.next_s = self._first_exit(rounds)

    def _leads(self) -> bool:
        """Whether the next round, step by step, is the closed form's."""
        free, last, stages, order = self._free_s, self._last_exit_s, self.stages, self._order
        lead, expected = order[self._longest], order[-1].exit_s
        for lane in order:
            seconds = lane.seconds + lane.growth_s
            share, leave = seconds / stages, lane.exit_s
            expected = leave + seconds if lane is lead else expected + share
            enter = leave if leave > free else free
            leave = enter + seconds
            if leave < last + share:
                leave = last + share
            if abs(leave - expected) > SAME_S * (leave if leave > 1.0 else 1.0):
                return False
            free, last = enter + share, leave
        return True

    def _first_exit(self, rounds: int) -> float:
        """When the first lane ends its step of a round; round 0 is under way."""
        first = self._order[0]
        if rounds == 0:
            return first.exit_s
        if self._longest:
            return self._last_exit(rounds - 1) + (first.seconds + rounds * first.growth_s) / self.stages
        return first.exit_s + rounds * (first.seconds + first.growth_s * (rounds + 1) * 0.5)

    def _last_exit(self, rounds: int) -> float:
        """When the last lane ends its step of a round."""
        order, at = self._order, self._longest
        if rounds == 0:
            return order[-1].exit_s
        lead = order[at]
        time = lead.exit_s + rounds * (lead.seconds + lead.growth_s * (rounds + 1) * 0.5)
        for place in range(at + 1, len(order)):
            time += (order[place].seconds + rounds * order[place].growth_s) / self.stages
        return time

    def _exits(self, rounds: int) -> list[float]:
        """When the lanes, in their order, end their steps of a round."""
        order, stages, found = self._order, self.stages, []
        if rounds == 0:
            return [lane.exit_s for lane in order]
        lead = order[self._longest]
        # Lanes before the longest leave behind the last of the round before.
        time = 0.0 if lead is order[0] else self._last_exit(rounds - 1)
        for lane in order:
            if lane is lead:
                time = lane.exit_s + rounds * (lane.seconds + lane.growth_s * (rounds + 1) * 0.5)
            else:
                time += (lane.seconds + rounds * lane.growth_s) / stages
            found.append(time)
        return found

    def _rounds_until(self, now: float) -> int:
        """The first round whose first exit is at or after a time."""
        if now >= self.next_s:
            return self._rounds
        lead = self._order[self._longest]
        # The longest lane gives the round to within one or two.
        growth = lead.growth_s
        found = steps_done(now - lead.exit_s, lead.seconds + growth, growth, self._rounds)
        while found and self._first_exit(found - 1) >= now:
            found -= 1
        while self._first_exit(found) < now:
            found += 1
        return found

    def _commit(self, now: float) -> None:
        """Let every lane have run the rounds whose steps began before a time; the order starts over."""
        order, first = self._order, self._rounds_until(now)
        self._rounds = 0
        if not first:
            self.next_s = order[0].exit_s
            return
        exits, before = self._exits(first), self._exits(first - 1)
        later = 1
        while later < len(order) and before[later] < now:
            later += 1
        enter = self._entered(later - 1, first, before)
        for place, lane in enumerate(order):
            count = first if place < later else first - 1
            step = lane.running
            if not count or step is None:
                continue
            lane.batcher.extend(step, count)
            lane.seconds += count * lane.growth_s
            lane.exit_s = exits[place] if place < later else before[place]
            lane.valid = 0 if step.leaving else lane.valid - count
            lane.count += count
        order[later - 1].enter_s = enter
        if later < len(order):
            order.rotate(-later)
        last = order[-1]
        self._last_exit_s, self._free_s = last.exit_s, enter + last.seconds / self.stages
        self.next_s = order[0].exit_s

    def _entered(self, place: int, rounds: int, before: list[float]) -> float:
        """When the lane at a place enters its step of a round: one share after the lane before it.

        Args:
            place: of the lane in the order.
            rounds: of the step; at least one.
            before: exits of the round before.
        """
        order, at, stages = self._order, self._longest, self.stages
        if place >= at:
            first, time = at, before[at]
        else:
            end, earlier = order[-1], rounds - 1
            entered = end.enter_s
            if earlier:
                entered = self._entered(len(order) - 1, earlier, self._exits(earlier - 1))
            first, time = 0, max(before[0], entered + (end.seconds + earlier * end.growth_s) / stages)
        for k in range(first, place):
            lane = order[k]
            time = max(before[k + 1], time + (lane.seconds + rounds * lane.growth_s) / stages)
        return time
