"""A replica with pipeline stages: as many micro batches in flight as stages, which they use in turn.

A micro batch whose step takes d seconds holds each of the p stages for d / p. It enters the first stage when
its last step has ended and the stage is free, and leaves the last stage no earlier than d / p after the
previous micro batch. Because a micro batch takes equally long on every stage, it can be delayed only at the
last stage, so two numbers per micro batch (entry, exit) give the schedule of all stages exactly.

While all micro batches only decode, the longest, M, never waits, and the others leave behind it: M exits d_M
after its previous exit, and each follower exits its d / p after the micro batch ahead. Rounds then sum in
closed form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from math import inf

from simulator.serving.replica.base import ReplicaParts, StepLoop, finish, steps_in
from simulator.serving.replica.batcher import Batcher
from simulator.serving.replica.meter import FULL
from simulator.serving.replica.planned_step import PlannedStep
from simulator.serving.replica.sequence import Sequence
from simulator.serving.steps.step_times import StepTimes

SAME_S = 1e-12
"""Times that differ by less than this are equal, s."""
NO_END = 1 << 60
SHORTEST_ROUNDS = 2
"""Rounds from which a stretch is summed in closed form."""


class PipelineLane:
    """One micro batch in flight: its sequences, and when its running step enters and leaves the stages."""

    __slots__ = (
        "batcher",
        "count",
        "exit_s",
        "growth_s",
        "ready_s",
        "running",
        "seconds",
        "valid",
    )

    def __init__(self, batcher: Batcher) -> None:
        self.batcher = batcher
        self.running: PlannedStep | None = None
        self.count = 1
        """Steps since the running one was planned."""
        self.ready_s = 0.0
        """End of the step before those, or start after idling."""
        self.exit_s = inf
        self.seconds = self.growth_s = 0.0
        """Seconds of the running step, and the growth of each later step of a stretch, s."""
        self.valid = 0
        """Steps for which the growth holds; 0 where the step cannot begin a stretch."""

    # Of a stretch of rounds, of which the running step belongs to round 0.

    def seconds_after(self, rounds: int) -> float:
        """Seconds of the step of a round."""
        return self.seconds + rounds * self.growth_s

    def exit_after(self, rounds: int) -> float:
        """When the longest lane leaves the last stage in a round."""
        return self.exit_s + rounds * (self.seconds + self.growth_s * (rounds + 1) * 0.5)

    def run(self, rounds: int) -> None:
        """Set the rounds that the lane has run; its running step is that of the next round."""
        step = self.running
        if step is not None:
            self.batcher.extend(step, rounds)
            self.valid = 0 if step.leaving else self.valid - rounds
        self.seconds += rounds * self.growth_s
        self.count += rounds


class PipelinedReplica(StepLoop):
    """A `Replica` with pipeline stages. A step is planned when the micro batch's previous step has ended."""

    def __init__(self, parts: ReplicaParts) -> None:
        super().__init__(parts)
        self.stages = self.steps.stages
        self.waiting: deque[Sequence] = deque()
        options, (self.kv,) = parts.options, parts.kvs
        slots = max(options.max_sequences // self.stages, 1)
        self.lanes = [
            PipelineLane(Batcher(options, self.kv, self.waiting, slots)) for _ in range(self.stages)
        ]
        self.batchers = [lane.batcher for lane in self.lanes]
        self._order: deque[PipelineLane] = deque()
        """Lanes under way, in the order in which they leave."""
        self._free_s = 0.0
        """Time at which the first stage is free."""
        self._last_exit_s = 0.0
        self._rounds = 0
        """Rounds of the running stretch; the lanes' times are those of its round 0."""
        self._longest = 0
        """Place of the longest lane in the order, during a stretch."""
        self._busy_from_s = 0.0
        self._turned_s = 0.0
        """Time of the last turn: no step begins before it."""

    @property
    def running(self) -> int:
        """Slots in use."""
        return self.kv.sequences

    @property
    def load(self) -> int:
        """Sequences waiting and running."""
        return len(self.waiting) + self.kv.sequences

    def submit(self, sequence: Sequence, now: float) -> None:
        """Queue a sequence at a time to which the replica was advanced.

        The replica is advanced to the end of a request's ingest. KV or an adapter that arrives meanwhile is
        submitted at an earlier time, and waits for the last turn.
        """
        if self._rounds and not all(self.scheduler.waits(lane.batcher) for lane in self.lanes):
            self._commit(now)
        self.waiting.append(sequence)
        start = now if now > self._turned_s else self._turned_s
        if self.next_s > start and len(self._order) < len(self.lanes):
            self.next_s = start

    def use(self, steps: StepTimes, now: float) -> None:
        """Switch to other step times where each micro batch's running step ends."""
        self.settle(now)
        self.steps = steps

    def settle(self, now: float) -> None:
        """See `StepLoop.settle`."""
        if self._rounds:
            self._commit(now)
        for lane in self.lanes:
            lane.growth_s, lane.valid = 0.0, 0

    def uncounted(self, now: float) -> int:
        """See `StepLoop.uncounted`: those of the longest lane, which others follow within a round."""
        return self._ended(self._order[self._longest], now) if self._rounds else 0

    def planned_until(self, rank: int) -> float:
        """See `StepLoop.planned_until`."""
        lane = self.lanes[rank]
        return 0.0 if lane.running is None else lane.exit_s

    @property
    def under_way(self) -> tuple[int, int, int, float] | None:
        """The step of the micro batch that leaves next, and the seconds that it holds a stage."""
        if not self._order:
            return None
        lane = self._order[0]
        step: PlannedStep = lane.running  # type: ignore[assignment]
        seconds = max(lane.seconds / self.stages, 1e-9)
        return step.decodes + step.prompt, step.decodes, step.kv_tokens, seconds

    @property
    def planned(self) -> Iterable[PlannedStep | None]:
        """See `StepLoop.planned`."""
        return [lane.running for lane in self._order]

    def turn(self) -> None:
        """End the lane step that ends next, and launch idle lanes."""
        self.advance(inf, once=True)

    def advance(self, until: float, once: bool = False) -> None:
        """Run all steps that end before a time; with ``once``, only the next to end."""
        if self.next_s >= until:
            return
        order, waiting, kv, meter = self._order, self.waiting, self.kv, self.meter
        cells, stages, now = meter.cells, self.stages, self.next_s
        while now < until:
            self._turned_s = now
            if self._rounds:
                self._commit(now)
            if order and order[0].exit_s <= now:
                lane = order.popleft()
                step: PlannedStep = lane.running  # type: ignore[assignment]
                # A lane's steps are charged the time since the previous end of a step on any lane.
                cells += (
                    self._busy_from_s, now, lane.ready_s, lane.count, step.decodes, step.kv_tokens,
                    step.prompt, len(step.firsts), kv.sequences, len(waiting), kv.free,
                )  # fmt: skip
                self._busy_from_s, lane.count = now, 1
                if step.firsts or step.leaving:
                    finish(step, lane.batcher, now, self.on_leave)
                if lane.valid > 2 and not waiting and lane.batcher.again(step):
                    # The same decodes again, on the same line segment of the table.
                    lane.seconds += lane.growth_s
                    lane.valid = 0 if step.leaving else lane.valid - 1
                    self._enter(lane, now)
                else:
                    lane.running = None
                    self._launch(lane, now)
            if waiting and len(order) < stages:
                for lane in self.lanes:
                    if lane.running is None and waiting:
                        self._launch(lane, now)
            if order:
                first = order[0]
                now = first.exit_s
                if first.valid > SHORTEST_ROUNDS and order[-1].valid > SHORTEST_ROUNDS:
                    now = self._stretched(now)
            else:
                now = inf
            if len(cells) >= FULL:
                meter.add_up()
            if once:
                break
        self.next_s = now

    def _launch(self, lane: PipelineLane, now: float) -> None:
        step = self.scheduler.plan(lane.batcher, now)
        if step is None:
            return
        chunks, decodes, kv_tokens = step.chunks, step.decodes, step.kv_tokens
        changes = chunks or step.firsts or step.leaving or step.preempted or step.until_s < inf
        if self.stretches and decodes and not changes:
            seconds, lane.growth_s, lane.valid = self.steps.stretch(decodes, kv_tokens)
        else:
            seconds, lane.growth_s, lane.valid = self.steps.step(chunks, decodes, kv_tokens), 0.0, 0
            if step.copied:
                seconds += step.copied * self.copy_s
            if step.read_s > seconds:
                seconds = step.read_s
        lane.running, lane.seconds = step, seconds
        self._enter(lane, now)

    def _enter(self, lane: PipelineLane, now: float) -> None:
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
        lane.exit_s = leave
        self._free_s, self._last_exit_s = enter + share, leave
        order.append(lane)

    # Rounds in closed form

    def _stretched(self, now: float) -> float:
        """Begin a stretch of rounds where all lanes only decode and the longest leads; returns its end.

        Args:
            now: end of the first lane's step, returned where there is no stretch.
        """
        order, batchers = self._order, self.batchers
        if self.waiting:
            for batcher in batchers:
                if batcher.running < batcher.slots:
                    return now
        rounds, decodes, longest, longest_s = NO_END, 0, 0, -1.0
        for place, lane in enumerate(order):
            batcher = lane.batcher
            quiet = batcher.quiet()
            if lane.valid <= quiet:
                quiet = lane.valid - 1
            if quiet < rounds:
                if quiet < SHORTEST_ROUNDS:
                    return now
                rounds = quiet
            decodes += batcher.decodes
            seconds = lane.seconds + lane.growth_s
            if seconds > longest_s:
                longest, longest_s = place, seconds
        batcher = batchers[0]
        if decodes * (rounds // batcher.block_tokens + 1) > self.kv.free and not batcher.reserves:
            return now
        if not self._leads(order[longest], rounds):
            return now
        self._longest, self._rounds = longest, rounds
        return self._first_exit(rounds)

    def _leads(self, lead: PipelineLane, rounds: int) -> bool:
        """Whether a lane is the longest throughout, and the next round is the same step by step."""
        free, last, stages, order = self._free_s, self._last_exit_s, self.stages, self._order
        first, expected = lead.seconds, order[-1].exit_s
        longest_s, final = first + lead.growth_s, first + rounds * lead.growth_s
        for lane in order:
            seconds, leave = lane.seconds, lane.exit_s
            if lane is lead:
                seconds = longest_s
                expected = leave + seconds
            else:
                growth = lane.growth_s
                if seconds > first or seconds + rounds * growth > final:
                    return False
                seconds += growth
                expected += seconds / stages
            share = seconds / stages
            enter = leave if leave > free else free
            leave = enter + seconds
            if leave < last + share:
                leave = last + share
            if abs(leave - expected) > SAME_S * (leave if leave > 1.0 else 1.0):
                return False
            free, last = enter + share, leave
        return True

    def _first_exit(self, rounds: int) -> float:
        """When the first lane ends its step of a round, from the first on."""
        order, at = self._order, self._longest
        first, lead = order[0], order[at]
        if not at:
            return lead.exit_after(rounds)
        earlier = rounds - 1
        time = lead.exit_after(earlier) if earlier else order[-1].exit_s
        if earlier:
            for place in range(at + 1, len(order)):
                time += order[place].seconds_after(earlier) / self.stages
        return time + first.seconds_after(rounds) / self.stages

    def _commit(self, now: float) -> None:
        """End the stretch: all lanes have run the steps that ended before a time, and run the next ones.

        Behind each exit of the longest lane the others follow, their shares apart; so do their entries.
        """
        order, stages = self._order, self.stages
        lead, time, free = order[self._longest], order[-1].exit_s, self._free_s
        exit_s = time
        ended = self._ended(lead, now)
        self._rounds = passed = behind = 0
        if ended:
            order.rotate(-self._longest)
            behind = len(order) - self._longest
            passed, exit_s, time = 1, lead.exit_after(ended - 1), lead.exit_after(ended)
            lead.run(ended)
            free = exit_s + lead.seconds / stages
        for place in range(passed, len(order)):
            # The next exit of the lane, which belongs to a round after that of the longest lane, or not.
            lane = order[place]
            rounds = ended - 1 if place < behind else ended
            exit_s = exit_s + lane.seconds_after(rounds) / stages if rounds else lane.exit_s
            if passed == place and exit_s < now:
                passed += 1
                lane.run(rounds + 1)
                free = (exit_s if exit_s > free else free) + lane.seconds / stages
            else:
                lane.exit_s = exit_s
                if rounds:
                    lane.run(rounds)
        for place in range(passed):
            lane = order[place]
            if lane is not lead:
                time += lane.seconds / stages
            lane.exit_s = time
        order.rotate(-passed)
        self._free_s, self._last_exit_s = free, order[-1].exit_s
        self.next_s = order[0].exit_s

    def _ended(self, lead: PipelineLane, now: float) -> int:
        """Exits of the longest lane before a time."""
        passed, growth, rounds = now - lead.exit_s, lead.growth_s, self._rounds
        if passed <= 0.0:
            return 0
        exits = int(steps_in(passed, lead.seconds + growth, growth))
        # Correct rounding errors of one or two exits.
        exits = exits + 1 if exits < rounds else rounds
        while lead.exit_after(exits - 1) >= now:
            exits -= 1
        while exits < rounds and lead.exit_after(exits) < now:
            exits += 1
        return exits
