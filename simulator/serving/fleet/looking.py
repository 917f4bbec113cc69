"""A look of the router at the replicas: their steps run up to its time, arrays hold their numbers."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

import numpy as np

from simulator.serving.fleet.member import Member
from simulator.serving.fleet.readings import Readings
from simulator.serving.routers import Router
from simulator.serving.routers.record import SentPrefixes
from simulator.serving.workload.request import Request


class Looking:
    """Which replicas have changed since the router's last look.

    Args:
        router: of the run.
        members: all replicas of the run by index; the fleet appends to it.
        ordered: whether the fleet runs replicas in the order of their steps' ends.
        span: tokens of a prefix id.

    Attributes:
        ends: heap of the end of each replica's next step, s, with its index; outdated entries among them.
        notes: whether anything is kept of a replica whose state changes.
    """

    def __init__(self, router: Router, members: list[Member], ordered: bool, span: int) -> None:
        self.ends: list[tuple[float, int]] = []
        self.router = router
        self._members = members
        self._follows = ordered or router.looks
        self._unsettled: set[int] = set()
        """Replicas that may be inside a stretch of steps."""
        self._readings: dict[int, Readings] = {}
        """By the list of the replicas that take requests."""
        self._kept: list[Readings] = []
        """Those that keep arrays of their replicas' states."""
        self.notes = router.reads_kv
        blocks = max((member.pool.costs.kv_blocks for member in members), default=1)
        self.record = SentPrefixes(span, blocks) if router.records else None
        """What the router has sent to which replica, where it reads that."""

    def touch(self, member: Member) -> None:
        """Note that a replica's state or the end of its next step has changed."""
        if self._follows:
            if member.replica.next_s < inf:
                heappush(self.ends, (member.replica.next_s, member.index))
            if self.notes:
                self.changed(member.index)

    def changed(self, index: int) -> None:
        """Note that a replica's state has changed."""
        for readings in self._kept:
            readings.changed.add(index)
        if self.router.reads_kv:
            self._unsettled.add(index)

    def forget(self) -> None:
        """Note that other replicas take requests, or that one has lost its state."""
        self._readings.clear()
        self._kept.clear()
        self.notes = self.router.reads_kv

    def pick(self, request: Request, takers: list[Member], turn: int, random: np.random.Generator) -> int:
        """Index of the replica that the router picks."""
        if len(takers) == 1:
            return 0
        picked = self.router.pick(request, self.targets(takers), turn, random)
        if self.record is not None:
            self.record.note(request, takers[picked].index)
        return picked

    def lost(self, index: int) -> None:
        """Note that a replica has lost its state."""
        if self.record is not None:
            self.record.forget(index)

    def targets(self, takers: list[Member]) -> Readings:
        """The replicas that take requests, as routers read them."""
        readings = self._readings.get(id(takers))
        if readings is None:
            readings = self._readings[id(takers)] = Readings(takers, self.record)
            if not readings.few:
                self._kept.append(readings)
                self.notes = True
        return readings

    def look(self, takers: list[Member], time: float) -> None:
        """Run the steps that end before a time; count KV blocks up to it where the router reads them."""
        reads_kv = self.router.reads_kv
        if not reads_kv and not (self.ends and self.ends[0][0] < time):
            return
        rows, members = self.targets(takers).rows, self._members
        due = self._due(rows, time)
        if reads_kv:
            due = sorted(due.union(self._unsettled & rows.keys()))
            for index in due:
                members[index].replica.catch_up(time)
        else:
            due = sorted(due)
            for index in due:
                members[index].replica.advance(time)
        for index in due:
            end = members[index].replica.next_s
            if end < inf:
                heappush(self.ends, (end, index))
        for readings in self._kept:
            readings.changed.update(due)
        self._unsettled.difference_update(due)

    def _due(self, rows: dict[int, int], time: float) -> set[int]:
        """Indices of the replicas that take requests and whose next step ends before a time."""
        ends, due, others = self.ends, set(), []
        while ends and ends[0][0] < time:
            end, index = heappop(ends)
            if self._members[index].replica.next_s == end:
                if index in rows:
                    due.add(index)
                else:
                    others.append((end, index))
        for entry in others:
            heappush(ends, entry)
        return due
