"""Tasks, the lanes they run on, and what each of them waits for."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

COMPUTE = "compute"
TENSOR = "tensor"
CONTEXT = "context"
EXPERT = "expert"
PIPELINE = "pipeline"
DATA = "data"
TO_HOST = "to host"
OUTPUT = "output"
TO_HOST = "to host"
FROM_HOST = "from host"
STREAMS = (COMPUTE, TENSOR, CONTEXT, EXPERT, PIPELINE, DATA, OUTPUT, TO_HOST, FROM_HOST)
"""What a rank does at the same time; work on one stream runs in the order in which it was added.

"output" carries the collectives of a vocabulary-parallel output layer.
"""

NO_LANE = -1
"""Lane of a task that takes no time and no stream: it only gathers what others wait for."""


class Lane(NamedTuple):
    """One stream of one rank."""

    rank: int
    stream: str


class Flow(NamedTuple):
    """A task that crosses shared links; where they cannot carry what it asks for, it takes longer."""

    demand: float
    """Part of each link that it uses at full speed, when its task takes no more than its seconds."""
    links: tuple[int, ...]


class TaskGraph:
    """A program for the clock, in columns: one entry per task in each list.

    A task starts when its predecessors have ended, among them the task before it on its lane, and
    then keeps its lane busy for ``seconds`` of work.
    """

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.lane: list[int] = []
        self.seconds: list[float] = []
        self.name: list[str] = []
        self.micro_batch: list[int] = []
        self.edges_from, self.edges_to = array("q"), array("q")
        self.flows: dict[int, Flow] = {}
        self.capacity: list[float] = []
        """What each link carries; 1: all that the collectives of a healthy rank can use."""
        self.bandwidth: dict[int, float] = {}
        """Capacity of the links of ranks where it is not 1."""
        self.memory: list[tuple[int, bool, int, float]] = []
        """Task, whether at its end (or its start), rank, and bytes taken (or, negative, given back)."""
        self.traffic: list[tuple[int, str, float]] = []
        """Task, level of the topology, bytes."""
        self._lane_index: dict[Lane, int] = {}
        self._link_index: dict[tuple[int, str], tuple[int, int]] = {}
        self._last: list[int] = []

    def __len__(self) -> int:
        return len(self.lane)

    def lane_of(self, rank: int, stream: str) -> int:
        """The number of a rank's stream, made on first use."""
        lane = Lane(rank, stream)
        index = self._lane_index.get(lane)
        if index is None:
            index = self._lane_index[lane] = len(self.lanes)
            self.lanes.append(lane)
            self._last.append(-1)
        return index

    def links_of(self, rank: int, level: str) -> tuple[int, int]:
        """The numbers of a rank's links out to a level of the topology and in from it, made on first use."""
        links = self._link_index.get((rank, level))
        if links is None:
            links = self._link_index[rank, level] = len(self.capacity), len(self.capacity) + 1
            self.capacity += [self.bandwidth.get(rank, 1.0)] * 2
        return links

    def add(
        self, lane: int, seconds: float, name: str, micro_batch: int = -1, after: Iterable[int] = ()
    ) -> int:
        """Append a task to a lane and return its number.

        Args:
            lane: from ``lane_of``, or NO_LANE.
            seconds: work at full speed.
            name: what it is, for people.
            micro_batch: which one it belongs to; -1 for none.
            after: tasks that must have ended first.
        """
        task = len(self.lane)
        self.lane.append(lane)
        self.seconds.append(seconds)
        self.name.append(name)
        self.micro_batch.append(micro_batch)
        if lane != NO_LANE:
            before = self._last[lane]
            if before >= 0:
                self.edges_from.append(before)
                self.edges_to.append(task)
            self._last[lane] = task
        for other in after:
            self.edges_from.append(other)
            self.edges_to.append(task)
        return task

    def edge(self, before: int, after: int) -> None:
        """Make one task wait for another."""
        self.edges_from.append(before)
        self.edges_to.append(after)

    def edges(self, before: Iterable[int], after: Iterable[int]) -> None:
        """Make tasks wait for others, one for one."""
        self.edges_from.extend(before)
        self.edges_to.extend(after)

    def successors(self) -> tuple[list[int], list[int], list[int]]:
        """Who waits for whom, packed.

        Returns:
            ``first, after, waits``: task t is waited for by ``after[first[t]:first[t + 1]]``, and
            waits itself for ``waits[t]`` tasks.
        """
        tasks = len(self)
        source = np.frombuffer(self.edges_from, dtype=np.int64)
        target = np.frombuffer(self.edges_to, dtype=np.int64)
        after = target[np.argsort(source, kind="stable")]
        first = np.concatenate(([0], np.cumsum(np.bincount(source, minlength=tasks))))
        return first.tolist(), after.tolist(), np.bincount(target, minlength=tasks).tolist()
