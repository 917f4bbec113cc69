"""Replications of a run side by side, a lane each: the same draws and the same bytes as ``events``.

Where a job only restarts (no dropped replicas, fewer nodes or stragglers), its events are faults and the
checks that find silent ones. The next event of every lane is one step over arrays of shape (lanes,). Lanes
that outlive the faults drawn at first are drawn again one by one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simulator.runs.events import (
    CHECKPOINT,
    FAR_BACK,
    LOST,
    PRODUCTIVE,
    SILENT,
    STATES,
    WAITING,
    Replication,
    first_block,
    replicate,
)
from simulator.runs.inputs import RunInputs
from simulator.runs.recovery import STAGES

WIDTH = 1024
"""Lanes of one array: 750 drawn faults each take 6 MB a figure; half as many lanes take a quarter longer."""
FEWEST = 16
"""Replications below which lanes cost more than they save."""
MOST_NODES = 32
"""Nodes lost at once above which times of repair are kept as lists, one by one."""

Array = NDArray[np.float64]


def restarts_only(inputs: RunInputs) -> bool:
    """Whether the events of a replication are faults that are drawn together, and what finds them."""
    horizon, block = first_block(inputs)
    return block == horizon and not (inputs.dropped or inputs.shrunk or inputs.slow)


def replicate_many(inputs: RunInputs, seed: int, first: int, last: int) -> Iterator[Replication]:
    """Replications ``first`` to ``last`` - 1, in order; what ``replicate`` gives for each.

    Args:
        inputs: the run.
        seed: of the generators.
        first, last: numbers of the replications.
    """
    if last - first < FEWEST or not restarts_only(inputs):
        for number in range(first, last):
            yield replicate(inputs, seed, number)
        return
    for start in range(first, last, WIDTH):
        numbers = range(start, min(start + WIDTH, last))
        done = _Lanes(inputs, seed, numbers).run()
        for number in numbers:
            yield done[number] if number in done else replicate(inputs, seed, number)


@dataclass(eq=False)
class _Drawn:
    """Faults of all lanes; arrays of shape (faults, lanes), padded with faults that never come."""

    when: Array
    nodes: Array
    repair: Array
    silent: NDArray[np.bool_]
    cause: NDArray[np.int64]
    causes: list[tuple[str, ...]]
    stages: dict[str, Array]

    @classmethod
    def of(cls, inputs: RunInputs, seed: int, numbers: range) -> _Drawn:
        """Draw as ``replicate`` does."""
        _, block = first_block(inputs)
        lists, delays = [], []
        for number in numbers:
            rng = np.random.default_rng([seed, number])
            drawn = inputs.faults.draw(rng, inputs.job, block)
            lists.append(drawn)
            delays.append(inputs.recovery.draw(rng, drawn, inputs.devices))
        rows = max(len(each) for each in lists) + 1

        def padded(columns: list[NDArray], fill: float) -> Array:
            table = np.full((rows, len(columns)), fill)
            for lane, column in enumerate(columns):
                table[: len(column), lane] = column
            return table

        return cls(
            padded([each.time for each in lists], np.inf),
            padded([each.nodes for each in lists], 0),
            padded([each.repair_s for each in lists], 0.0),
            padded([each.notice for each in lists], -1) == SILENT,
            padded([each.cause for each in lists], 0).astype(int),
            [each.causes for each in lists],
            {name: padded([each[name] for each in delays], 0.0) for name in STAGES},
        )


_OF_LANES = (
    *("lane", "time", "position", "cycle", "saves", "resets", "lost_nodes", "spare_s", "next", "clean"),
    *("saved", "left", "down", "notice_at", "noticed"),
)
"""Arrays of `_Lanes` whose last axis is the lanes."""


class _Lanes:
    """State of the lanes that still run; arrays of shape (lanes,) unless said."""

    def __init__(self, inputs: RunInputs, seed: int, numbers: range) -> None:
        self.inputs, self.numbers = inputs, numbers
        self.drawn = _Drawn.of(inputs, seed, numbers)
        self.until = first_block(inputs)[1]
        self.counted = inputs.waits or inputs.spares > 0
        """Whether nodes under repair matter."""
        self.order = [*list(STAGES)[:2], WAITING, *list(STAGES)[2:]]
        count = len(numbers)
        self.lane = np.arange(count)
        zero = np.zeros(count)
        self.time, self.position, self.cycle, self.saves = zero, zero, zero, zero
        self.next = np.zeros(count, dtype=int)
        """The next fault."""
        self.notice_at, self.noticed = np.full((0, count), np.inf), np.zeros((0, count), dtype=int)
        """When checks will find silent faults, and which, of shape (most at once, lanes)."""
        self.clean = np.full(count, np.nan)
        """The newest save before a silent fault that nobody knows of."""
        self.saved = np.zeros((len(inputs.tiers), count))
        self.pending = [np.full((2, 0, count), np.inf) for _ in inputs.tiers]
        """Saves that are not safe yet: when they are, and of what, of shape (2, most at once, lanes)."""
        self.pends = bool(self.drawn.silent.any())
        self.left = np.zeros((len(self.order), count))
        self.resets = np.zeros(count, dtype=bool)
        self.down = np.full((0, count), np.inf)
        """Times at which lost nodes are back, ascending, of shape (most nodes, lanes); infinite: none."""
        self.seconds = {name: np.zeros(count) for name in STATES}
        self.lost_nodes, self.spare_s = np.zeros(count), np.zeros(count)
        self.done: dict[int, Replication] = {}

    def run(self) -> dict[int, Replication]:
        """Finished replications by number; those that need more faults are left out."""
        if self.counted and self.drawn.nodes.max() > MOST_NODES:
            return {}
        while len(self.lane):
            fault_at = self.drawn.when[self.next, self.lane]
            notice_at = self.notice_at.min(0, initial=np.inf)
            when = np.minimum(fault_at, notice_at)
            comes = when <= self.until
            finished = self._advance(np.where(comes, when, self.until))
            if finished.any():
                self._note(finished)
            struck = comes & ~finished
            finds = notice_at < fault_at
            if not struck.all():
                self._keep(struck)
                finds = finds[struck]
            if len(self.lane):
                self._event(finds)
        return self.done

    def _keep(self, goes_on: NDArray[np.bool_]) -> None:
        """Leave lanes behind."""
        for name in _OF_LANES:
            setattr(self, name, getattr(self, name)[..., goes_on])
        self.pending = [each[..., goes_on] for each in self.pending]
        self.seconds = {name: spent[goes_on] for name, spent in self.seconds.items()}

    def _note(self, finished: NDArray[np.bool_]) -> None:
        """Write the replications of lanes that are done."""
        for index in np.flatnonzero(finished):
            lane, time, faults = int(self.lane[index]), float(self.time[index]), int(self.next[index])
            seconds = {name: float(spent[index]) for name, spent in self.seconds.items()}
            seconds[PRODUCTIVE] = float(self.position[index])
            names, causes = self.drawn.causes[lane], self.drawn.cause[:faults, lane].tolist()
            self.done[self.numbers[lane]] = Replication(
                wall_s=time,
                seconds=seconds,
                faults=faults,
                lost_nodes=int(self.lost_nodes[index]),
                spare_s=float(self.spare_s[index]) + self.inputs.spares * time,
                by_cause=dict(Counter(names[cause] for cause in causes)),
            )

    # Advancing

    def _advance(self, until: Array) -> NDArray[np.bool_]:
        """Go on to a time, or to the end of the work; whether it is reached."""
        recovering = (self.left > 0).any(0)
        if recovering.any():
            self._recover_until(np.where(recovering, until, -np.inf))
            recovering = (self.left > 0).any(0)
        return self._work(until, ~recovering & (self.time < until))

    def _recover_until(self, until: Array) -> None:
        """Go through stages of recoveries; ``until`` is before the present where none is under way."""
        now, stopped = self.time, self.time >= until
        moving = ~stopped
        for name, left in zip(self.order, self.left, strict=True):
            passes = ~stopped & (now < until)
            spent = np.where(passes, np.minimum(left, until - now), 0.0)
            self.seconds[name] = self.seconds[name] + spent
            now = now + spent
            stopped = stopped | ~passes | (spent < left)
            left -= spent
        over = moving & self.resets & ~(self.left > 0).any(0)
        self.cycle = np.where(over, 0.0, self.cycle)
        self.resets = self.resets & ~over
        self._spend(np.where(moving, now - self.time, 0.0))

    def _trained(self, cycle: Array) -> Array:
        """Training time in the first seconds of a cycle and those after it."""
        period, stall = self.inputs.period_s, self.inputs.stall_s
        if np.isinf(period):
            return cycle
        full = np.floor(cycle / (period + stall))
        return full * period + np.minimum(cycle - full * (period + stall), period)

    def _work(self, until: Array, works: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Train to a time, or to the end of the work, in the lanes that work."""
        inputs, before = self.inputs, self.cycle
        period, cycle = inputs.period_s, inputs.period_s + inputs.stall_s
        trained_before = self._trained(before)
        need = inputs.work_s - self.position
        if np.isinf(period):
            end = before + need
        else:
            goal = trained_before + need
            full = np.maximum(np.ceil(goal / period * (1 - 1e-15)) - 1, 0)
            end = full * cycle + goal - full * period
        finished = works & (self.time + (end - before) <= until)
        spent = np.where(works, np.where(finished, end - before, until - self.time), 0.0)
        trained = np.where(finished, need, self._trained(before + spent) - trained_before)
        trained = np.where(works, trained, 0.0)
        if inputs.tiers:
            self._save(before, before + spent, trained_before, works)
        self.seconds[CHECKPOINT] = self.seconds[CHECKPOINT] + np.maximum(spent - trained, 0.0)
        self._spend(spent)
        self.position = np.where(finished, inputs.work_s, self.position + trained)
        if not np.isinf(period):
            passed = np.where(works, np.floor((before + spent) / cycle), 0.0)
            self.saves = self.saves + passed
            self.cycle = np.where(works, before + spent - passed * cycle, before)
        return finished

    def _spend(self, spent: Array) -> None:
        """Let time pass; spares in use are not idle."""
        start, end = self.time, self.time + spent
        self.time = end
        if not self.inputs.spares or not len(self.down):
            return
        back = self.down[: self.inputs.spares]
        counts = (back > start) & np.isfinite(back) & (spent > 0)
        # A sum over the first axis adds row by row, as a loop over nodes does.
        busy = np.where(counts, np.minimum(back, end) - start, 0.0).sum(0)
        self.spare_s = self.spare_s - busy

    def _save(self, before: Array, after: Array, trained: Array, works: NDArray[np.bool_]) -> None:
        """Note the saves that begin in a stretch of the cycle, and those that have become safe."""
        period, cycle = self.inputs.period_s, self.inputs.period_s + self.inputs.stall_s
        now = self.time + (after - before)
        last = np.floor((after - period) / cycle + 1e-12)
        first = np.maximum(np.floor((before - period) / cycle) + 1, 0)
        for number, tier in enumerate(self.inputs.tiers):
            safe, position = self.pending[number]
            late = works & (safe <= now)
            newest = np.where(late, position, 0.0).max(0, initial=0.0)
            self.saved[number] = np.maximum(self.saved[number], newest)
            waiting = [np.where(late, np.inf, self.pending[number])]
            index = last - (self.saves + last + 1) % tier.every
            looks = works.copy()
            for _ in range(FAR_BACK):
                looks &= index >= first
                if not looks.any():
                    break
                safe = self.time + index * cycle + period - before + tier.safe_s
                is_safe = looks & (safe <= now)
                position = self.position + ((index + 1) * period - trained)
                newest = np.maximum(self.saved[number], position)
                self.saved[number] = np.where(is_safe, newest, self.saved[number])
                looks &= ~is_safe
                if self.pends:
                    waiting.append(np.where(looks, [safe, position], np.inf)[:, None])
                index = index - tier.every
            pending = np.concatenate(waiting, axis=1)
            self.pending[number] = pending[:, np.isfinite(pending[0]).any(1)]

    # Events

    def _event(self, finds: NDArray[np.bool_]) -> None:
        """A fault in every lane, or a check that finds an earlier, silent one."""
        lanes, drawn = self.lane, self.drawn
        which, silent = self.next, drawn.silent[self.next, lanes] & ~finds
        strikes, before, detect = ~silent, self.position, 1.0
        self.next = self.next + ~finds
        if finds.any():
            which = np.where(finds, self._take_found(finds), which)
            # Nothing is lost where a later fault went back behind the silent one.
            vain = finds & ~(self.position > self.clean)
            strikes = strikes & ~vain
            before = np.where(finds & ~vain, self.clean, before)
            detect = np.where(finds, 0.0, 1.0)
            self.clean = np.where(finds, np.nan, self.clean)
        if silent.any():
            newest = self.saved.max(0, initial=0.0)
            self.clean = np.where(silent & np.isnan(self.clean), newest, self.clean)
            noticed_at = np.where(silent, self.time + drawn.stages["detect"][which, lanes], np.inf)
            self.notice_at = np.concatenate([self.notice_at, noticed_at[None]])
            self.noticed = np.concatenate([self.noticed, which[None]])
        self._strike(strikes, which, before, detect)

    def _take_found(self, finds: NDArray[np.bool_]) -> NDArray[np.int64]:
        """The silent fault that is found first in each lane; taken from the list where it is found now."""
        row, column = self.notice_at.argmin(0), np.arange(len(finds))
        fault = self.noticed[row, column]
        self.notice_at[row[finds], column[finds]] = np.inf
        used = np.isfinite(self.notice_at).any(1)
        self.notice_at, self.noticed = self.notice_at[used], self.noticed[used]
        return fault

    def _strike(
        self, strikes: NDArray[np.bool_], which: NDArray[np.int64], before: Array, detect: Array | float
    ) -> None:
        """Roll back where a fault is known, to no later than ``before``, and start to recover."""
        lanes, drawn = self.lane, self.drawn
        nodes = drawn.nodes[which, lanes]
        self.lost_nodes = self.lost_nodes + np.where(strikes, nodes, 0)
        if self.counted:
            self._lose(np.where(strikes, nodes, 0), self.time + drawn.repair[which, lanes], strikes)
        load = self._roll_back(nodes, strikes, before)
        seconds = {name: drawn.stages[name][which, lanes] for name in STAGES}
        seconds["detect"] = seconds["detect"] * detect
        seconds["load"] = np.where(np.isnan(seconds["load"]), load, seconds["load"])
        waits = dict(seconds)
        for group in filter(None, self.inputs.recovery.overlap):
            longest = np.argmax([seconds[name] for name in group], axis=0)
            for place, name in enumerate(group):
                waits[name] = np.where(longest == place, waits[name], 0.0)
        located_at = self.time + (waits["detect"] + waits["locate"])
        waits[WAITING] = self._spares_at(located_at) if self.inputs.waits else np.zeros(len(lanes))
        left = np.stack([waits[name] for name in self.order])
        self.left = np.where(strikes, left, self.left)
        self.resets = np.where(strikes, (left > 0).any(0), self.resets)
        self.cycle = np.where(strikes, 0.0, self.cycle)

    def _roll_back(self, nodes: Array, strikes: NDArray[np.bool_], before: Array) -> Array:
        """Return to the newest safe save that survives; the seconds to load it."""
        best, load = np.full(len(nodes), -np.inf), np.zeros(len(nodes))
        for tier, saved in zip(self.inputs.tiers, self.saved, strict=True):
            better = (saved > best) | ((saved == best) & (tier.load_s < load))
            better &= tier.lost_nodes >= nodes
            best, load = np.where(better, saved, best), np.where(better, tier.load_s, load)
        position = np.minimum(np.where(np.isinf(best), 0.0, best), before)
        position = np.where(strikes, position, self.position)
        self.seconds[LOST] = self.seconds[LOST] + (self.position - position)
        self.position = position
        self.saved = np.where(strikes, np.minimum(self.saved, position), self.saved)
        if self.pends:
            self.pending = [np.where(strikes, np.inf, each) for each in self.pending]
        return load

    def _lose(self, nodes: Array, back: Array, strikes: NDArray[np.bool_]) -> None:
        """Nodes are away until ``back``; those that have come back are forgotten, where a fault is known."""
        largest = int(nodes.max(initial=0))
        new = np.where(np.arange(largest)[:, None] < nodes, back, np.inf)
        away = np.where(strikes & (self.down <= self.time), np.inf, self.down)
        down = np.sort(np.concatenate([away, new]), axis=0)
        self.down = down[: int(np.isfinite(down).sum(0).max(initial=0))]

    def _spares_at(self, when: Array) -> Array:
        """Seconds from a time until every lost node has a spare."""
        spares, count = self.inputs.spares, np.isfinite(self.down).sum(0)
        if not len(self.down):
            return np.zeros(len(when))
        place = np.maximum(count - spares - 1, 0)
        back = np.take_along_axis(self.down, place[None], 0)[0]
        return np.where(count > spares, np.maximum(back - when, 0.0), 0.0)
