"""The clock of the event engine: tasks start when what they wait for has ended.

Events are ordered by (time, priority, serial), as simpy orders them: at one instant tasks end in the
order in which their ends were scheduled, and the network's rates are worked out once, after all ends
and starts of that instant. A lane that serves in order needs no simpy Resource: the task before it on
the lane is one more thing that a task waits for.

Two things change a running task's speed and schedule its end anew: computation and communication
beside each other on one rank slow each other, and flows that meet on a link share it fairly. What meets
nothing ends when it was first said to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from simpy import Environment
from simpy.events import NORMAL, Event, Timeout

from hwmodels.errors import InputError
from simulator.engine.flows import fair_rates
from simulator.engine.graph import COMPUTE, FROM_HOST, PIPELINE, TO_HOST, TaskGraph

AFTER_ALL = NORMAL + 1
"""Priority of what happens when all ends and starts of an instant are known."""


class Contention(NamedTuple):
    """How much longer work takes while the other kind runs on the same rank (1: not at all).

    Host copies run on copy engines, sends on two of NCCL's 16 to 24 channels: they slow nothing.
    """

    compute: float = 1.0
    communication: float = 1.0


@dataclass(slots=True)
class Running:
    """A task whose speed can change while it runs."""

    task: int
    rank: int
    kind: int
    left: float
    rate: float = 0.0
    share: float = 1.0
    """Part of what it asks for that its links give it."""
    since: float = 0.0
    end: Event | None = None


class Clock:
    """Runs one task graph.

    Args:
        graph: the tasks.
        contention: slow-down of computation beside communication, and the reverse.
    """

    def __init__(self, graph: TaskGraph, contention: Contention | None = None) -> None:
        self.graph = graph
        self.environment = Environment()
        self._lane, self._seconds, self._flows = graph.lane, graph.seconds, graph.flows
        self._starts = [-1.0] * len(graph)
        self._ends = [-1.0] * len(graph)
        self._first, self._after, self._waits = graph.successors()
        slower = contention or Contention()
        self._speed = (1 / slower.compute, 1 / slower.communication)
        self._place = [(lane.rank, _kind(lane.stream)) for lane in graph.lanes]
        contends = [slower != Contention() and kind >= 0 for _, kind in self._place]
        self._changeable = [lane >= 0 and contends[lane] for lane in graph.lane]
        for task in graph.flows:
            self._changeable[task] = True
        ranks = 1 + max((lane.rank for lane in graph.lanes), default=0)
        # Per rank and kind; None stands for a task that has run at full speed since it started.
        self._running: list[tuple[dict[int, Running | None], ...]] = [({}, {}, {}) for _ in range(ranks)]
        # Per link the flows on it (a dict, for its order), and links whose flows are to share anew.
        self._capacity = graph.capacity
        self._users: list[dict[int, None]] = [{} for _ in graph.capacity]
        self._changed: dict[int, None] = {}

    def run(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Run every task.

        Returns:
            Start and end of each task in seconds, shape (tasks,).

        Raises:
            InputError: tasks wait for each other in a circle.
        """
        self._start([task for task, waits in enumerate(self._waits) if waits == 0][::-1])
        self.environment.run()
        starts, ends = np.array(self._starts), np.array(self._ends)
        stuck = np.flatnonzero(ends < 0)
        if len(stuck):
            graph, task = self.graph, int(stuck[0])
            raise InputError(
                f"deadlock: {len(stuck)} tasks wait for each other, the first is {graph.name[task]!r} of "
                f"micro batch {graph.micro_batch[task]} on rank {graph.lanes[graph.lane[task]].rank}"
            )
        return starts, ends

    def _start(self, ready: list[int]) -> None:
        environment, starts = self.environment, self._starts
        now = environment.now
        while ready:
            task = ready.pop()
            starts[task] = now
            if self._changeable[task]:
                self._start_changeable(task)
                continue
            seconds = self._seconds[task]
            if seconds > 0:
                Timeout(environment, seconds, task).callbacks.append(self._end)  # type: ignore[union-attr]
            else:
                self._finish(task, ready)

    def _end(self, event: Event) -> None:
        self._finish(event._value, ready := [])
        if ready:
            self._start(ready)

    def _end_alone(self, event: Event) -> None:
        task: int = event._value
        rank, kind = self._place[self._lane[task]]
        if self._running[rank][kind].get(task, self) is None:
            self._end_of(task, rank, kind)
        # Else something met it on the way: its end was scheduled anew.

    def _finish(self, task: int, ready: list[int]) -> None:
        self._ends[task] = self.environment.now
        waits = self._waits
        for after in self._after[self._first[task] : self._first[task + 1]]:
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)

    def _start_changeable(self, task: int) -> None:
        rank, kind = self._place[self._lane[task]]
        groups = self._running[rank]
        group = groups[kind]
        if task in self._flows:
            self._enter_links(task)
        if kind < 0 or not groups[1 - kind]:
            group[task] = None
            end = Timeout(self.environment, self._seconds[task], task)
            end.callbacks.append(self._end_alone)  # type: ignore[union-attr]
            return
        group[task] = running = Running(task, rank, kind, self._seconds[task])
        self._adjust(running)
        if len(group) == 1:
            self._adjust_beside(rank, kind)

    def _adjust_beside(self, rank: int, kind: int) -> None:
        """Something of this kind began or ended: the other kind changes its speed."""
        if kind < 0 or self._speed[1 - kind] == 1:
            return
        others = self._running[rank][1 - kind]
        for task, other in others.items():
            if other is None:
                other = Running(task, rank, 1 - kind, self._seconds[task], 1.0, 1.0, self._starts[task])
                others[task] = other
            self._adjust(other)

    def _adjust(self, running: Running) -> None:
        """Give a task its speed of now; if that is new, count what is done and schedule the end again."""
        rate, kind = running.share, running.kind
        if kind >= 0 and self._running[running.rank][1 - kind]:
            rate *= self._speed[kind]
        if rate == running.rate and running.end:
            return
        now = self.environment.now
        running.left = max(running.left - (now - running.since) * running.rate, 0.0)
        running.rate, running.since = rate, now
        running.end = Timeout(self.environment, running.left / rate, running)
        running.end.callbacks.append(self._end_changeable)  # type: ignore[union-attr]

    def _end_changeable(self, event: Event) -> None:
        running: Running = event._value
        if running.end is event:  # else the speed changed since, and the end with it
            self._end_of(running.task, running.rank, running.kind)

    def _end_of(self, task: int, rank: int, kind: int) -> None:
        group = self._running[rank][kind]
        del group[task]
        if task in self._flows:
            self._leave_links(task)
        self._finish(task, ready := [])
        self._start(ready)
        if not group:
            self._adjust_beside(rank, kind)

    def _enter_links(self, task: int) -> None:
        demand, links = self._flows[task]
        for link in links:
            users = self._users[link]
            if users or demand > self._capacity[link]:
                self._share_later(link)
            users[task] = None

    def _leave_links(self, task: int) -> None:
        for link in self._flows[task].links:
            users = self._users[link]
            del users[task]
            if users:
                self._share_later(link)

    def _share_later(self, link: int) -> None:
        """Work out the rates on a link once all ends and starts of this instant are known."""
        if not self._changed:
            event = Event(self.environment)
            event._ok, event._value = True, None
            event.callbacks.append(self._share_links)  # type: ignore[union-attr]
            self.environment.schedule(event, AFTER_ALL)  # type: ignore[arg-type]
        self._changed[link] = None

    def _share_links(self, _: Event) -> None:
        changed, self._changed = self._changed, {}
        seen: set[int] = set()
        for link in changed:
            if link not in seen:
                self._share_among(self._together(link, seen))

    def _together(self, link: int, seen: set[int]) -> list[int]:
        """The flows that share a link, those that share others with them, and so on; notes their links."""
        flows: dict[int, None] = {}
        reached = [link]
        seen.add(link)
        for each in reached:
            for task in self._users[each]:
                if task not in flows:
                    flows[task] = None
                    further = [other for other in self._flows[task].links if other not in seen]
                    reached += further
                    seen.update(further)
        return list(flows)

    def _share_among(self, tasks: list[int]) -> None:
        flows = [self._flows[task] for task in tasks]
        demands = [flow.demand for flow in flows]
        rates = fair_rates([flow.links for flow in flows], demands, self._capacity)
        for task, demand, rate in zip(tasks, demands, rates, strict=True):
            rank, kind = self._place[self._lane[task]]
            group = self._running[rank][kind]
            running = group[task]
            if running is None:
                if rate == demand:
                    continue
                running = Running(task, rank, kind, self._seconds[task], 1.0, 1.0, self._starts[task])
                group[task] = running
            running.share = rate / demand
            self._adjust(running)


def _kind(stream: str) -> int:
    """0 computes, 1 communicates, -1 slows nothing."""
    return 0 if stream == COMPUTE else -1 if stream in (PIPELINE, TO_HOST, FROM_HOST) else 1
