"""Tasks, their lanes, the links that they cross, and their predecessors.

The client gives tasks their meaning: a task carries the id of a part of the client's breakdown, the id of an
item of work, and a name for reports.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np

NONE = -1
"""No lane, part or item. A task without a lane takes no time: it only joins predecessors."""


class Stream(NamedTuple):
    """A kind of lane."""

    name: str
    does: Literal["compute", "communicate", "copy out", "copy in"] = "communicate"
    contends: bool = True
    """Whether its communication and the computation of the same rank slow each other."""


class Lane(NamedTuple):
    """One stream of one rank; its tasks run one after another, in the order in which they were added."""

    rank: int
    stream: Stream


class Flow(NamedTuple):
    """A task that crosses links; it takes longer where they cannot carry its requested rate."""

    rate: float
    """B/s on each link while the task takes no more than its seconds."""
    links: tuple[int, ...]


class TaskGraph:
    """A program for the clock, in columns: one entry per task in each list.

    A task starts when its predecessors have ended, among them the task before it on its lane, and
    then keeps its lane busy for ``seconds`` of work.

    Args:
        counted: unit of item numbers in reports.
    """

    def __init__(self, counted: str = "item") -> None:
        self.counted = counted
        self.lanes: list[Lane] = []
        self.parts: list[str] = []
        self.item_name: list[str] = []
        """Name of each item of the client's work (a pass, a request)."""
        self.item_number: list[int] = []
        self.lane = array("i")
        self.seconds = array("d")
        self.name: list[str] = []
        self.part = array("i")
        self.item = array("i")
        self.edges_from, self.edges_to = array("q"), array("q")
        self.flows: dict[int, Flow] = {}
        self.capacity: list[float] = []
        """What each link carries, B/s."""
        self.memory: list[tuple[int, bool, int, float]] = []
        """Task, whether at its end (else its start), rank, and bytes allocated (negative: freed)."""
        self.traffic: dict[int, tuple[tuple[str, float], ...]] = {}
        """Bytes of a task by level of the topology."""
        self._lane_index: dict[Lane, int] = {}
        self._part_index: dict[str, int] = {}
        self._last: list[int] = []

    def __len__(self) -> int:
        return len(self.lane)

    def lane_of(self, rank: int, stream: Stream) -> int:
        """The id of a rank's stream, made on first use."""
        lane = Lane(rank, stream)
        index = self._lane_index.get(lane)
        if index is None:
            index = self._lane_index[lane] = len(self.lanes)
            self.lanes.append(lane)
            self._last.append(-1)
        return index

    def part_of(self, name: str) -> int:
        """The id of a part of the client's breakdown, made on first use."""
        index = self._part_index.get(name)
        if index is None:
            index = self._part_index[name] = len(self.parts)
            self.parts.append(name)
        return index

    def add_item(self, name: str, number: int) -> int:
        """Begin a piece of work and return its id."""
        self.item_name.append(name)
        self.item_number.append(number)
        return len(self.item_name) - 1

    def add_link(self, capacity: float) -> int:
        """Make a link that carries ``capacity`` B/s and return its id."""
        self.capacity.append(capacity)
        return len(self.capacity) - 1

    def add(
        self,
        lane: int,
        seconds: float,
        name: str,
        part: int = NONE,
        item: int = NONE,
        after: Iterable[int] = (),
    ) -> int:
        """Append a task to a lane and return its id.

        Args:
            lane: from ``lane_of``, or NONE.
            seconds: work at full speed.
            name: for people.
            part: from ``part_of``, or NONE.
            item: from ``add_item``, or NONE.
            after: tasks that must have ended first.
        """
        task = len(self.lane)
        self.lane.append(lane)
        self.seconds.append(seconds)
        self.name.append(name)
        self.part.append(part)
        self.item.append(item)
        if lane != NONE:
            before = self._last[lane]
            if before >= 0:
                self.edges_from.append(before)
                self.edges_to.append(task)
            self._last[lane] = task
        for other in after:
            self.edges_from.append(other)
            self.edges_to.append(task)
        return task

    def gate(self, after: Iterable[int], name: str = "join") -> int:
        """Append a task that takes no time and no lane, and ends when others have ended."""
        return self.add(NONE, 0.0, name, after=after)

    def edge(self, before: int, after: int) -> None:
        """Make one task wait for another."""
        self.edges_from.append(before)
        self.edges_to.append(after)

    def edges(self, before: Iterable[int], after: Iterable[int]) -> None:
        """Make each task of one list wait for its partner in the other."""
        self.edges_from.extend(before)
        self.edges_to.extend(after)

    def successors(self) -> tuple[array[int], array[int], array[int]]:
        """Successors of all tasks, packed.

        Returns:
            ``first, after, waits``: task t is waited for by ``after[first[t]:first[t + 1]]``, and
            waits itself for ``waits[t]`` tasks.
        """
        tasks = len(self)
        source = np.frombuffer(self.edges_from, dtype=np.int64)
        target = np.frombuffer(self.edges_to, dtype=np.int64)
        after = target[np.argsort(source, kind="stable")]
        first = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=tasks))))
        return _packed(first), _packed(after), _packed(np.bincount(target, minlength=tasks))


def _packed(numbers: np.ndarray) -> array[int]:
    """Whole numbers as Python reads them one by one, 8 bytes each: a list takes 36."""
    return array("q", numbers.astype(np.int64).tobytes())
