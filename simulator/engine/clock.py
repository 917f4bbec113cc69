"""The clock of the event engine: a task starts when its predecessors have ended.

Events are ordered by (time, priority, serial), as simpy orders them: at one instant tasks end in the order in
which their ends were scheduled, and the rates of flows are computed once, after all ends and starts of that
instant. A lane that serves in order needs no simpy Resource: the previous task on the lane is a predecessor.

Two effects change the speed of a running task and reschedule its end: computation and communication on one
rank slow each other, and flows on one link share it fairly. A task without either ends as first scheduled.

A graph may grow while it runs: a client, for instance a simpy process on the clock's environment, adds lanes,
links and tasks to the graph and releases them; ``ended`` gives it an event to wait for.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from simpy import Environment
from simpy.events import NORMAL, Event, Timeout

from core.errors import InputError
from simulator.engine.flows import fair_rates
from simulator.engine.graph import NONE, Flow, Stream, TaskGraph

COMPUTE, COMMUNICATE = 0, 1
"""Kinds of work that slow each other."""
MOST_MEETINGS = 10_000
"""Meetings of flows whose rates are kept."""
AFTER_ALL = NORMAL + 1
"""Priority of the events that follow all ends and starts of an instant."""


class Contention(NamedTuple):
    """Slow-down of work while the other kind runs on the same rank (1: none)."""

    compute: float = 1.0
    communication: float = 1.0
    streams: tuple[tuple[str, float], ...] = ()
    """Slow-down of computation beside communication, by stream name, where it differs from ``compute``."""


Callback = Callable[[Event], None]


class TaskEnd(Event):
    """The end of a task: simpy's ``Timeout`` without its checks, at two thirds of its time."""

    def __init__(
        self,
        environment: Environment,
        seconds: float,
        value: object,
        callbacks: list[Callback],
    ) -> None:
        self.env = environment
        self.callbacks = callbacks  # type: ignore[assignment]
        self._value = value
        self._ok = True
        environment.schedule(self, NORMAL, seconds)


@dataclass(slots=True)
class Running:
    """A task whose speed can change while it runs."""

    task: int
    rank: int
    kind: int
    left: float
    rate: float = 0.0
    share: float = 1.0
    """Share of the requested rate that its links give it."""
    since: float = 0.0
    end: Event | None = None


class Clock:
    """Runs one task graph.

    Args:
        graph: the tasks.
        contention: slow-down of computation beside communication, and the reverse. Beside communication of
            several streams the largest counts.
        environment: the simpy environment to run on, shared with the client's processes; by default its own.
    """

    def __init__(
        self,
        graph: TaskGraph,
        contention: Contention | None = None,
        environment: Environment | None = None,
    ) -> None:
        self.graph = graph
        self._shared = environment is not None
        self.environment = environment or Environment()
        self._lane, self._seconds, self._flows = graph.lane, graph.seconds, graph.flows
        self._capacity = graph.capacity
        slower = contention or Contention()
        self._contends = slower != Contention()
        self._speed = (1 / slower.compute, 1 / slower.communication)
        self._beside = {name: 1 / factor for name, factor in slower.streams}
        # Per lane the speed of computation beside its communication, where streams differ.
        self._beside_lane: list[float] = []
        # Callbacks of task ends; simpy never changes such a list, so all ends of a kind share one.
        self._at_end: list[Callback] = []
        self._at_end_alone: list[Callback] = []
        self._at_end_changeable: list[Callback] = []
        # Per task; the tasks released first keep their successors packed, all others in a dictionary.
        self._starts, self._ends = array("d"), array("d")
        self._waits, self._changeable = array("q"), bytearray()
        self._first, self._after = array("q", [0]), array("q")
        self._later: dict[int, list[int]] = {}
        self._watched: dict[int, Event] = {}
        self._edges = 0
        # Per lane its rank and kind of work.
        self._place: list[tuple[int, int]] = []
        # Per rank and kind; None stands for a task that has run at full speed since it started.
        self._running: list[tuple[dict[int, Running | None], ...]] = []
        # Per link its flows (a dict, for its order), and the links whose rates must be recomputed.
        self._users: list[dict[int, None]] = []
        self._changed: dict[int, None] = {}
        self._rates: dict[tuple[Flow, ...], list[float]] = {}
        """Rates of flows that have met: passes repeat the meetings of the first."""

    def run(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Release every task and run until none is left.

        Returns:
            Start and end of each task in seconds, shape (tasks,).

        Raises:
            InputError: dependency cycle between tasks.
        """
        if not (self._shared or self._contends or self._flows or len(self._starts) or self._watched):
            return self._run_ahead()
        self.release()
        self.environment.run()
        # A clock in no reference cycle frees its graph, hundreds of MiB, without the collector.
        self._at_end, self._at_end_alone, self._at_end_changeable = [], [], []
        return self.times()

    def _run_ahead(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Run a graph whose tasks keep their speed, without events: a task starts when its last predecessor
        ends."""
        first, after, waits = self.graph.successors()
        seconds, tasks = self._seconds, len(self.graph)
        starts, ends = array("d", [0.0]) * tasks, array("d", [-1.0]) * tasks
        ready = [task for task in range(tasks) if not waits[task]]
        for task in ready:  # grows
            end = ends[task] = starts[task] + seconds[task]
            for following in after[first[task] : first[task + 1]]:
                if end > starts[following]:
                    starts[following] = end
                waits[following] -= 1
                if not waits[following]:
                    ready.append(following)
        self._starts, self._ends = starts, ends
        return self.times()

    def times(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Start and end of each released task in seconds, shape (tasks,).

        Raises:
            InputError: a task has not ended; with no event left, a dependency cycle.
        """
        starts, ends = np.array(self._starts), np.array(self._ends)
        stuck = np.flatnonzero(ends < 0)
        if len(stuck):
            graph, task = self.graph, int(stuck[0])
            item, lane = graph.item[task], graph.lane[task]
            of = f" of {graph.counted} {graph.item_number[item]}" if item != NONE else ""
            on = f" on rank {graph.lanes[lane].rank}" if lane != NONE else ""
            raise InputError(
                f"deadlock: {len(stuck)} tasks wait for each other, the first is {graph.name[task]!r}{of}{on}"
            )
        return starts, ends

    def release(self) -> None:
        """Take in the tasks added to the graph since the last release; tasks without predecessors start now.

        Raises:
            ValueError: a new edge leads to a task that has started.
        """
        graph, tasks = self.graph, len(self._starts)
        added = len(graph) - tasks
        self._at_end, self._at_end_alone = [self._end], [self._end_alone]
        self._at_end_changeable = [self._end_changeable]
        self._take_places()
        self._starts += array("d", [-1.0]) * added
        self._ends += array("d", [-1.0]) * added
        if tasks:
            self._waits += array("q", [0]) * added
            self._first += self._first[-1:] * added
            self._take_edges()
        else:
            self._first, self._after, self._waits = graph.successors()
            self._edges = len(graph.edges_from)
        contends = [self._contends and kind >= 0 for _, kind in self._place]
        contends.append(False)  # NONE, the lane of gates
        self._changeable += bytes(contends[lane] for lane in islice(graph.lane, tasks, None))
        for task in graph.flows if not tasks else (t for t in range(tasks, len(graph)) if t in graph.flows):
            self._changeable[task] = True
        waits = self._waits
        self._start([task for task in range(tasks, len(graph)) if waits[task] == 0][::-1])

    def ended(self, task: int) -> Event:
        """An event at the end of a task, with the task as its value; immediate if the task has ended."""
        if task < len(self._ends) and self._ends[task] >= 0:
            return Timeout(self.environment, 0.0, task)
        if task not in self._watched:
            self._watched[task] = Event(self.environment)
        return self._watched[task]

    def _take_places(self) -> None:
        graph = self.graph
        new = graph.lanes[len(self._place) :]
        self._place += [(lane.rank, _kind(lane.stream)) for lane in new]
        self._beside_lane += [self._beside.get(lane.stream.name, self._speed[COMPUTE]) for lane in new]
        ranks = 1 + max((lane.rank for lane in new), default=-1)
        self._running += [({}, {}, {}) for _ in range(len(self._running), ranks)]
        self._users += [{} for _ in range(len(self._users), len(graph.capacity))]

    def _take_edges(self) -> None:
        graph, first = self.graph, self._edges
        for before, after in zip(
            islice(graph.edges_from, first, None), islice(graph.edges_to, first, None), strict=True
        ):
            if self._starts[after] >= 0:
                raise ValueError(
                    f"task {after} ({graph.name[after]!r}) has started and can wait for no other"
                )
            if self._ends[before] < 0:
                self._later.setdefault(before, []).append(after)
                self._waits[after] += 1
        self._edges = len(graph.edges_from)

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
                TaskEnd(environment, seconds, task, self._at_end)
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
        # Else its speed changed on the way, and its end was rescheduled.

    def _finish(self, task: int, ready: list[int]) -> None:
        self._ends[task] = self.environment.now
        waits = self._waits
        for after in self._after[self._first[task] : self._first[task + 1]]:
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
        if self._later or self._watched:
            self._finish_late(task, ready)

    def _finish_late(self, task: int, ready: list[int]) -> None:
        """Notify tasks that were released later, and clients."""
        waits = self._waits
        for after in self._later.pop(task, ()):
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
        if task in self._watched:
            self._watched.pop(task).succeed(task)

    def _start_changeable(self, task: int) -> None:
        rank, kind = self._place[self._lane[task]]
        groups = self._running[rank]
        group = groups[kind]
        if task in self._flows:
            self._enter_links(task)
        if kind < 0 or not groups[1 - kind]:
            group[task] = None
            TaskEnd(self.environment, self._seconds[task], task, self._at_end_alone)
            return
        group[task] = running = Running(task, rank, kind, self._seconds[task])
        self._adjust(running)
        if len(group) == 1 or self._beside:
            self._adjust_beside(rank, kind)

    def _adjust_beside(self, rank: int, kind: int) -> None:
        """Work of this kind began or ended: change the speed of the other kind."""
        if kind < 0 or (self._speed[1 - kind] == 1 and not self._beside):
            return
        slowed = self._running[rank][1 - kind]
        for task, running in slowed.items():
            if running is None:
                running = Running(task, rank, 1 - kind, self._seconds[task], 1.0, 1.0, self._starts[task])
                slowed[task] = running
            self._adjust(running)

    def _adjust(self, running: Running) -> None:
        """Set the current speed of a task; if it changed, count the finished work and reschedule the end."""
        rate, kind = running.share, running.kind
        others = self._running[running.rank][1 - kind] if kind >= 0 else {}
        if others and kind == COMPUTE and self._beside:
            rate *= min(self._beside_lane[self._lane[task]] for task in others)
        elif others:
            rate *= self._speed[kind]
        if rate == running.rate and running.end:
            return
        now = self.environment.now
        running.left = max(running.left - (now - running.since) * running.rate, 0.0)
        running.rate, running.since = rate, now
        running.end = TaskEnd(self.environment, running.left / rate, running, self._at_end_changeable)

    def _end_changeable(self, event: Event) -> None:
        running: Running = event._value
        if running.end is event:  # Otherwise the speed has changed and the end was rescheduled.
            running.end = None  # An event and its task in a cycle, 280 bytes, would outlive the run.
            self._end_of(running.task, running.rank, running.kind)

    def _end_of(self, task: int, rank: int, kind: int) -> None:
        groups = self._running[rank]
        group = groups[kind]
        del group[task]
        if task in self._flows:
            self._leave_links(task)
        self._finish(task, ready := [])
        if ready:
            self._start(ready)
        if (not group or self._beside) and groups[1 - kind]:
            self._adjust_beside(rank, kind)

    def _enter_links(self, task: int) -> None:
        rate, links = self._flows[task]
        for link in links:
            users = self._users[link]
            if users or rate > self._capacity[link]:
                self._share_later(link)
            users[task] = None

    def _leave_links(self, task: int) -> None:
        for link in self._flows[task].links:
            users = self._users[link]
            del users[task]
            if users:
                self._share_later(link)

    def _share_later(self, link: int) -> None:
        """Compute the rates on a link after all ends and starts of this instant."""
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
        """Flows connected to a link by shared links; adds their links to ``seen``."""
        flows: dict[int, None] = {}
        reached = [link]
        seen.add(link)
        for reached_link in reached:
            for task in self._users[reached_link]:
                if task not in flows:
                    flows[task] = None
                    further = [other for other in self._flows[task].links if other not in seen]
                    reached += further
                    seen.update(further)
        return list(flows)

    def _share_among(self, tasks: list[int]) -> None:
        flows = tuple(self._flows[task] for task in tasks)
        rates = self._rates.get(flows)
        if rates is None:
            rates = fair_rates([flow.links for flow in flows], [flow.rate for flow in flows], self._capacity)
            if len(self._rates) < MOST_MEETINGS:
                self._rates[flows] = rates
        for task, (demand, _), rate in zip(tasks, flows, rates, strict=True):
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


def _kind(stream: Stream) -> int:
    """COMPUTE, COMMUNICATE, or -1 for work that slows nothing."""
    return COMPUTE if stream.does == "compute" else COMMUNICATE if stream.contends else -1
