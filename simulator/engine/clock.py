"""The clock of the event engine: tasks start when what they wait for has ended.

Events are ordered by (time, priority, serial), as simpy orders them: at one instant tasks end in the
order in which their ends were scheduled, and the network's rates are worked out once, after all ends
and starts of that instant. A lane that serves in order needs no simpy Resource: the task before it on
the lane is one more thing that a task waits for.

Two things change a running task's speed and schedule its end anew: computation and communication
beside each other on one rank slow each other, and flows share links fairly.
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
    """Speed before the slow-down: bytes per second of a flow, 1 for seconds of work."""
    since: float = 0.0
    end: Event | None = None


class Clock:
    """Runs one task graph.

    Args:
        graph: the tasks.
        contention: slow-down of computation beside communication, and the reverse.
        capacity: bytes per second of each link that the graph's flows name, shape (links,).
    """

    def __init__(
        self,
        graph: TaskGraph,
        contention: Contention | None = None,
        capacity: NDArray[np.float64] | None = None,
    ) -> None:
        self.graph = graph
        self.environment = Environment()
        self._lane, self._seconds = graph.lane, graph.seconds
        self._starts = [-1.0] * len(graph)
        self._ends = [-1.0] * len(graph)
        self._first, self._after, self._waits = graph.successors()
        self._capacity = capacity if capacity is not None else np.zeros(0)
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
        self._flows: dict[int, Running] = {}
        self._sharing_due = False

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
        group = self._running[rank][kind]
        if group.get(task, self) is not None:
            return  # the other kind started beside it: its end was scheduled anew
        del group[task]
        self._finish(task, ready := [])
        self._start(ready)
        if not group:
            self._adjust_beside(rank, kind)

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
        if not groups[1 - kind] and task not in self.graph.flows:
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
        if running.end is not event:
            return  # the speed changed since, and the end with it
        task = running.task
        if task in self.graph.flows and task not in self._flows:
            self._flows[task] = running
            running.left, running.rate, running.share = self.graph.flows[task].size, 0.0, 0.0
            self._share_links()
            return
        if self._flows.pop(task, None):
            self._share_links()
        group = self._running[running.rank][running.kind]
        del group[task]
        self._finish(task, ready := [])
        self._start(ready)
        if not group:
            self._adjust_beside(running.rank, running.kind)

    def _share_links(self) -> None:
        if not self._sharing_due:
            self._sharing_due = True
            event = Event(self.environment)
            event._ok, event._value = True, None
            event.callbacks.append(self._on_share)  # type: ignore[union-attr]
            self.environment.schedule(event, AFTER_ALL)  # type: ignore[arg-type]

    def _on_share(self, _: Event) -> None:
        self._sharing_due = False
        rates = fair_rates([self.graph.flows[task].links for task in self._flows], self._capacity)
        for running, rate in zip(self._flows.values(), rates.tolist(), strict=True):
            running.share = rate
            self._adjust(running)


def _kind(stream: str) -> int:
    """0 computes, 1 communicates, -1 slows nothing."""
    return 0 if stream == COMPUTE else -1 if stream in (PIPELINE, TO_HOST, FROM_HOST) else 1
