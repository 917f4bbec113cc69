"""Event simulation of a run: one replication.

A step is no event. Between two faults work advances at a rate, and saves follow each other at a period, so
that the cost grows with faults. A fault that strikes during a recovery starts it again.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from simulator.faults import NOTICES, FaultProcess, Faults
from simulator.runs.inputs import Dropped, RunInputs

PRODUCTIVE, LOST, CHECKPOINT, SLOWED, REDUCED, WAITING, STALL = (
    "productive",
    "lost work",
    "checkpoint",
    "stragglers",
    "fewer devices",
    "waiting for spares",
    "stall",
)
STATES = (
    PRODUCTIVE,
    *(LOST, CHECKPOINT, SLOWED, REDUCED),
    *("detect", "locate", "replace", "initialise", "load", STALL, WAITING),
)
"""States of a job; a run's seconds in them add up to its wall time."""

SILENT = NOTICES.index("silent")
LONGEST = 200.0
"""Times of the work after which a replication that is not done ends: the job makes no progress."""
MOST_FAULTS = 100_000
"""Faults after which a replication that is not done ends: they take seconds of processor time."""
MOST_DRAWN = 20_000
"""Expected faults that are drawn together: a block of time is no longer, so that memory stays small."""
FAR_BACK = 64
"""Saves under way at the same time that are looked at."""


@dataclass
class Replication:
    """One drawn run.

    Attributes:
        wall_s: seconds until it is done, or until it was given up.
        done: whether it finished.
        seconds: by state; they add up to ``wall_s``.
        faults, lost_nodes: that struck it.
        spare_s: node-seconds of idle spares.
        by_cause: faults by name.
        segments: (state, start, end) in order, where they were asked for.
    """

    wall_s: float = 0.0
    done: bool = True
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STATES, 0.0))
    faults: int = 0
    lost_nodes: int = 0
    spare_s: float = 0.0
    by_cause: dict[str, int] = field(default_factory=dict)
    segments: list[tuple[str, float, float]] = field(default_factory=list)


def replicate(inputs: RunInputs, seed: int, number: int = 0, traced: bool = False) -> Replication:
    """Draw one replication; the same seed and number give the same faults for every recovery and spare.

    Args:
        inputs: the run.
        seed, number: of the generator.
        traced: whether to keep the segments.
    """
    return _Run(inputs, np.random.default_rng([seed, number]), traced).run()


def first_block(inputs: RunInputs) -> tuple[float, float]:
    """Seconds in which faults that happen once are drawn, and those of a block of repeated ones."""
    horizon = max(1.25 * inputs.work_s, 1.0)
    rate = inputs.faults.rate(inputs.job)
    return horizon, min(horizon, MOST_DRAWN / rate) if rate else horizon


class _Run:
    """State of one replication."""

    def __init__(self, inputs: RunInputs, rng: np.random.Generator, traced: bool) -> None:
        self.inputs, self.rng, self.traced = inputs, rng, traced
        self.replication = Replication()
        self.time = self.position = self.cycle = 0.0
        self.saves = 0
        self.saved = [0.0] * len(inputs.tiers)
        self.pending: list[list[tuple[float, float]]] = [[] for _ in inputs.tiers]
        self.recovering: deque[tuple[str, float]] = deque()
        self.resets = False
        self.down: list[float] = []
        """Times at which lost nodes are back, sorted."""
        self.out = 0
        self.missing = 0
        self.slow: dict[int, float] = {}
        self.clean: float | None = None
        self.order = count()
        self.events: list[tuple[float, int, Callable[[Any], None], object]] = []
        self.drawn_until = 0.0
        self.horizon, self.block = first_block(inputs)
        for index, slow in enumerate(inputs.slow):
            self._push(slow.start, self._slower, (index, slow.factor))
            if math.isfinite(slow.end):
                self._push(slow.end, self._faster, (index, slow.evicted))

    def run(self) -> Replication:
        """Advance from event to event until the work is done."""
        limit = LONGEST * self.inputs.work_s + 1.0
        while self.replication.done:
            if not self.events or self.events[0][0] > self.drawn_until:
                if self._finished_by(self.drawn_until):
                    break
                self._draw_more()
                continue
            when, _, happen, what = heapq.heappop(self.events)
            if self._finished_by(when):
                break
            happen(what)
            if self.time > limit or self.replication.faults > MOST_FAULTS:
                self.replication.done = False
        self.replication.wall_s = self.time
        self.replication.seconds[PRODUCTIVE] = self.position
        self.replication.spare_s += self.inputs.spares * self.time
        return self.replication

    def _push(self, when: float, happen: Callable[[Any], None], what: object) -> None:
        heapq.heappush(self.events, (when, next(self.order), happen, what))

    def _draw_more(self) -> None:
        """Draw the faults of another block of time, with their recoveries."""
        inputs, start = self.inputs, self.drawn_until
        repeated = tuple(each for each in inputs.faults.processes if each.repeats)
        if start == 0 and self.block == self.horizon:
            self._push_drawn(inputs.faults.processes, start, self.block)
        else:
            if start == 0:
                once = tuple(each for each in inputs.faults.processes if not each.repeats)
                self._push_drawn(once, start, self.horizon)
            self._push_drawn(repeated, start, self.block)
        self.drawn_until = start + self.block

    def _push_drawn(self, processes: Sequence[FaultProcess], start: float, span: float) -> None:
        inputs = self.inputs
        drawn = Faults("", tuple(processes)).draw(self.rng, inputs.job, span)
        stages = inputs.recovery.draw(self.rng, drawn, inputs.devices)
        # Lists: numbers are read one by one.
        columns = (drawn.time, drawn.nodes, drawn.repair_s, drawn.notice, drawn.cause, *stages.values())
        for when, nodes, repair, notice, cause, *seconds in zip(
            *(each.tolist() for each in columns), strict=True
        ):
            fault = nodes, repair, notice, drawn.causes[cause], dict(zip(stages, seconds, strict=True))
            self._push(start + when, self._fault, fault)

    # Advancing

    @property
    def speed(self) -> float:
        """Work per second of training time."""
        return 1 / (math.prod(self.slow.values()) if self.slow else 1.0) * self._size

    @property
    def _size(self) -> float:
        """Speed of the devices that are left over all of them."""
        if self.out and self.inputs.dropped:
            return 1 - self.out / self.inputs.dropped.replicas
        if self.missing:
            return self.inputs.shrunk[min(self.missing, len(self.inputs.shrunk)) - 1]
        return 1.0

    def _finished_by(self, until: float) -> bool:
        """Advance to a time, or to the end of the work if it comes first."""
        if self.recovering and self.time < until:
            self._recover_until(until)
        if self.recovering or self.time >= until:
            return False
        return self._work(until)

    def _recover_until(self, until: float) -> None:
        """Go through stages of a recovery up to a time; they pass as one stretch of time."""
        seconds, now = self.replication.seconds, self.time
        while self.recovering and now < until:
            name, left = self.recovering[0]
            spent = min(left, until - now)
            seconds[name] += spent
            if self.traced and spent > 0:
                self.replication.segments.append((name, now, now + spent))
            now += spent
            if spent < left:
                self.recovering[0] = (name, left - spent)
                break
            self.recovering.popleft()
        if not self.recovering and self.resets:
            self.cycle, self.resets = 0.0, False
        self._spend(now - self.time)

    def _work(self, until: float) -> bool:
        inputs, speed = self.inputs, self.speed
        period, stall = inputs.period_s, inputs.stall_s
        cycle, before = period + stall, self.cycle
        done_before = self._trained(before)
        need = (inputs.work_s - self.position) / speed
        if math.isinf(period):
            end = before + need
        else:
            goal = done_before + need
            full = max(math.ceil(goal / period * (1 - 1e-15)) - 1, 0)
            end = full * cycle + goal - full * period
        finished = self.time + (end - before) <= until
        spent = end - before if finished else until - self.time
        trained = need if finished else self._trained(before + spent) - done_before
        if inputs.tiers:
            self._save(before, before + spent, done_before, speed)
        self._split(spent, trained, speed, self._size)
        self.position = inputs.work_s if finished else self.position + trained * speed
        if not math.isinf(period):
            passed = math.floor((before + spent) / cycle)
            self.saves += passed
            self.cycle = before + spent - passed * cycle
        return finished

    def _trained(self, cycle: float) -> float:
        """Training time in the first seconds of a cycle and those after it."""
        period = self.inputs.period_s
        if math.isinf(period):
            return cycle
        full = math.floor(cycle / (period + self.inputs.stall_s))
        return full * period + min(cycle - full * (period + self.inputs.stall_s), period)

    def _split(self, spent: float, trained: float, speed: float, size: float) -> None:
        """Account for training, saves, stragglers and missing devices."""
        seconds = self.replication.seconds
        pure = speed / size
        seconds[CHECKPOINT] += max(spent - trained, 0.0)
        seconds[SLOWED] += trained * (1 - pure)
        seconds[REDUCED] += trained * (pure - speed)
        if self.traced and spent > 0:
            self.replication.segments.append((PRODUCTIVE, self.time, self.time + spent))
        self._spend(spent)

    def _spend(self, spent: float) -> None:
        """Let time pass; spares in use are not idle."""
        start, end = self.time, self.time + spent
        self.time = end
        if not self.down or spent <= 0:
            return
        busy = 0.0
        for back in self.down[: self.inputs.spares]:
            # Added in order: `sum` rounds otherwise from Python 3.12 on.
            busy += max((back if back < end else end) - start, 0.0)
        self.replication.spare_s -= busy

    # Saves

    def _save(self, before: float, after: float, trained: float, speed: float) -> None:
        """Note the saves that begin between two moments of the cycle, and those that have become safe."""
        period, cycle = self.inputs.period_s, self.inputs.period_s + self.inputs.stall_s
        now = self.time + (after - before)
        last = math.floor((after - period) / cycle + 1e-12)
        first = max(math.floor((before - period) / cycle) + 1, 0)
        for number, tier in enumerate(self.inputs.tiers):
            pending = self.pending[number]
            for safe, position in pending:
                if safe <= now:
                    self.saved[number] = max(self.saved[number], position)
            pending[:] = [each for each in pending if each[0] > now]
            index = last - (self.saves + last + 1) % tier.every
            for _ in range(FAR_BACK):
                if index < first:
                    break
                position = self.position + speed * ((index + 1) * period - trained)
                safe = self.time + index * cycle + period - before + tier.safe_s
                if safe <= now:
                    self.saved[number] = max(self.saved[number], position)
                    break
                pending.append((safe, position))
                index -= tier.every

    def _roll_back(self, nodes: int, before: float | None = None) -> float:
        """Return to the newest safe save that survives; the seconds to load it."""
        tiers = self.inputs.tiers
        safe = [number for number, tier in enumerate(tiers) if tier.lost_nodes >= nodes]
        best = max(safe, key=lambda number: (self.saved[number], -tiers[number].load_s), default=None)
        position = self.saved[best] if best is not None else 0.0
        position = min(position, self.position if before is None else before)
        lost = self.position - position
        self.replication.seconds[LOST] += lost
        self.position = position
        self.saved = [min(each, position) for each in self.saved]
        for pending in self.pending:
            pending.clear()
        return tiers[best].load_s if best is not None else 0.0

    # Events

    def _fault(self, fault: tuple[int, float, int, str, dict[str, float]]) -> None:
        nodes, repair, notice, cause, seconds = fault
        self.replication.faults += 1
        self.replication.by_cause[cause] = self.replication.by_cause.get(cause, 0) + 1
        if notice == SILENT:
            if self.clean is None:
                self.clean = max(self.saved, default=0.0)
            self._push(self.time + seconds["detect"], self._noticed, fault)
            return
        self._lose(nodes, repair)
        if self.inputs.dropped and self.out < self.inputs.dropped.replicas - 1 and not self.resets:
            self._drop(self.inputs.dropped)
            return
        self._recover(seconds, self._roll_back(nodes))

    def _noticed(self, fault: tuple[int, float, int, str, dict[str, float]]) -> None:
        """A check finds silent corruption: everything since the last clean save is lost."""
        nodes, repair, _, _, seconds = fault
        if self.clean is None or self.position <= self.clean:
            self.clean = None
            return
        self._lose(nodes, repair)
        load = self._roll_back(nodes, self.clean)
        self.clean = None
        self._recover({**seconds, "detect": 0.0}, load)

    def _lose(self, nodes: int, repair: float) -> None:
        self.replication.lost_nodes += nodes
        self._return_repaired()
        back = self.time + repair
        at = bisect_right(self.down, back)
        self.down[at:at] = [back] * nodes
        if nodes and self.inputs.shrunk:
            self._push(back, self._repaired, None)

    def _return_repaired(self) -> None:
        """Drop nodes that are back; ``down`` is sorted."""
        del self.down[: bisect_right(self.down, self.time)]

    def _recover(self, seconds: dict[str, float], load: float) -> None:
        """Start the stages of a recovery, in place of one that is under way."""
        if math.isnan(seconds["load"]):
            seconds = {**seconds, "load": load}
        waits = self.inputs.recovery.hidden(seconds)
        stages = [(name, waits[name]) for name in ("detect", "locate")]
        if self.inputs.shrunk:
            self.missing = max(len(self.down) - self.inputs.spares, 0)
        elif self.inputs.waits:
            ready = self._spares_at(self.time + sum(spent for _, spent in stages))
            stages.append((WAITING, ready))
        stages += [(name, waits[name]) for name in ("replace", "initialise", "load")]
        self.recovering = deque(stage for stage in stages if stage[1] > 0)
        self.resets = bool(self.recovering)
        self.cycle = 0.0

    def _spares_at(self, when: float) -> float:
        """Seconds from a time until every lost node has a spare."""
        if len(self.down) <= self.inputs.spares:
            return 0.0
        return max(self.down[len(self.down) - self.inputs.spares - 1] - when, 0.0)

    def _drop(self, dropped: Dropped) -> None:
        """Go on without a replica."""
        self.out += 1
        back = self.time + dropped.stall_s + dropped.out_s
        if self.inputs.waits:
            back += self._spares_at(self.time + dropped.stall_s)
        self._push(back, self._rejoin, None)
        self._pause(dropped.stall_s)

    def _rejoin(self, _: object) -> None:
        if self.out and self.inputs.dropped:
            self.out -= 1
            self._pause(self.inputs.dropped.rejoin_s)

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self.recovering.append((STALL, seconds))

    def _repaired(self, _: object) -> None:
        """All nodes are back: save, and go on with the full job."""
        self._return_repaired()
        left = max(len(self.down) - self.inputs.spares, 0)
        if self.missing and not left:
            self._restart()
        self.missing = min(self.missing, left)

    def _slower(self, what: tuple[int, float]) -> None:
        self.slow[what[0]] = what[1]

    def _faster(self, what: tuple[int, bool]) -> None:
        self.slow.pop(what[0], None)
        if what[1]:
            self._restart()

    def _restart(self) -> None:
        """A planned restart: a save first, so that no work is lost."""
        means = self.inputs.means()
        stages = [(CHECKPOINT, self.inputs.stall_s)]
        stages += [(name, means.get(name, 0.0)) for name in ("replace", "initialise", "load")]
        self.saved = [self.position] * len(self.saved)
        self.recovering = deque(stage for stage in stages if stage[1] > 0)
        self.resets, self.cycle = bool(self.recovering), 0.0
