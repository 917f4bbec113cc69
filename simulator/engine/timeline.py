"""The record of a run: intervals, memory over time, bytes moved."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.engine.graph import NONE, Stream, TaskGraph


class Interval(NamedTuple):
    """The interval of one task on its stream."""

    name: str
    number: int
    """Number of the task's item; -1: none."""
    start: float
    end: float


@dataclass(frozen=True)
class Timeline:
    """The result of a run.

    Attributes:
        graph: the tasks that ran.
        starts, ends: seconds, shape (tasks,).
        static: bytes that each rank holds throughout; empty for none.
    """

    graph: TaskGraph
    starts: NDArray[np.float64]
    ends: NDArray[np.float64]
    static: tuple[float, ...] = ()

    @property
    def seconds(self) -> float:
        """From the start of the step to the end of its last task."""
        return float(self.ends.max(initial=0.0))

    @cached_property
    def ranks(self) -> int:
        """Simulated ranks; each stands for all equal ranks."""
        return 1 + max((lane.rank for lane in self.graph.lanes), default=-1)

    @cached_property
    def _by_lane(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tasks that took time, lane by lane, and where each lane begins."""
        lane = np.array(self.graph.lane, dtype=np.int64)
        worked = np.flatnonzero(self.ends > self.starts)
        tasks = worked[np.argsort(lane[worked], kind="stable")]
        return tasks, np.searchsorted(lane[tasks], np.arange(len(self.graph.lanes) + 1))

    def _on_lane(self, lane: int) -> NDArray[np.int64]:
        tasks, first = self._by_lane
        return tasks[first[lane] : first[lane + 1]]

    @cached_property
    def period(self) -> float:
        """The step time: seconds from one step's start to the next one's.

        A rank starts its next step when it has ended this one. The period equals ``seconds`` where ranks
        synchronise and is shorter where they do not (Qi et al., Zero Bubble Pipeline Parallelism, section 4).
        """
        first = dict.fromkeys(range(self.ranks), np.inf)
        last = dict.fromkeys(range(self.ranks), -np.inf)
        for index, lane in enumerate(self.graph.lanes):
            tasks = self._on_lane(index)
            if len(tasks):
                first[lane.rank] = min(first[lane.rank], float(self.starts[tasks].min()))
                last[lane.rank] = max(last[lane.rank], float(self.ends[tasks].max()))
        return max((last[rank] - first[rank] for rank in first if last[rank] > first[rank]), default=0.0)

    def tasks(self, rank: int, stream: Stream | None = None) -> NDArray[np.int64]:
        """Ids of the tasks of one stream that took time, in the order in which they ran.

        None stands for the compute stream.
        """
        lanes = [
            self._on_lane(index)
            for index, lane in enumerate(self.graph.lanes)
            if lane.rank == rank and (lane.stream == stream if stream else lane.stream.does == "compute")
        ]
        return np.sort(np.concatenate(lanes)) if lanes else np.zeros(0, np.int64)

    def number(self, task: int) -> int:
        """The number of a task's item; -1: none."""
        item = self.graph.item[task]
        return NONE if item == NONE else self.graph.item_number[item]

    def intervals(self, rank: int, stream: Stream | None = None) -> list[Interval]:
        """The tasks of one stream of a rank, in order; of the compute stream where ``stream`` is None."""
        return [
            Interval(
                self.graph.name[task], self.number(task), float(self.starts[task]), float(self.ends[task])
            )
            for task in self.tasks(rank, stream).tolist()
        ]

    def busy(self, rank: int, stream: Stream | None = None) -> float:
        """Busy seconds of a stream of a rank; of the compute stream where ``stream`` is None."""
        tasks = self.tasks(rank, stream)
        return float((self.ends[tasks] - self.starts[tasks]).sum())

    @cached_property
    def streams(self) -> tuple[Stream, ...]:
        """All streams, in the order of their first tasks."""
        return tuple(dict.fromkeys(lane.stream for lane in self.graph.lanes))

    @property
    def bubble_share(self) -> float:
        """Share of the time between steps in which compute streams are idle, mean over ranks."""
        busy = sum(self.busy(rank) for rank in range(self.ranks))
        return 1.0 - busy / (self.ranks * self.period) if self.period else 0.0

    def memory(self, rank: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Bytes held by a rank over time.

        At one instant, freed bytes count before allocated ones.

        Returns:
            Times in seconds, and the bytes held from each time on.
        """
        changes = [(task, at_end, size) for task, at_end, owner, size in self.graph.memory if owner == rank]
        tasks = np.array([task for task, _, _ in changes], dtype=np.int64)
        at_end = np.array([at_end for _, at_end, _ in changes], dtype=bool)
        sizes = np.array([size for _, _, size in changes], dtype=np.float64)
        times = np.where(at_end, self.ends[tasks], self.starts[tasks])
        order = np.lexsort((sizes > 0, times))
        base = self.static[rank % len(self.static)] if self.static else 0.0
        return np.concatenate(([0.0], times[order])), base + np.concatenate(([0.0], np.cumsum(sizes[order])))

    def peak_memory(self, rank: int) -> float:
        """Peak bytes of a rank."""
        return float(self.memory(rank)[1].max())

    @cached_property
    def traffic(self) -> dict[str, float]:
        """Bytes moved over each level of the topology, summed over the simulated ranks."""
        bytes_of: dict[str, float] = {}
        for sent in self.graph.traffic.values():
            for level, size in sent:
                bytes_of[level] = bytes_of.get(level, 0.0) + size
        return bytes_of
