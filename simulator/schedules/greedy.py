"""Orders by list scheduling: each rank, whenever it is free, takes the most urgent work that it can start.

Used where a published schedule is a rule rather than a table: waves, bidirectional pipelines, and
backwards split in two under a memory limit.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence

import numpy as np

from core.errors import InputError
from core.records import record
from simulator.schedules.base import BACKWARD, FORWARD, WEIGHT, Array, Route, Schedule, Task, WorkTimes
from simulator.schedules.walk import walk


@record()
class Rules:
    """Memory limits and preferences of a rank.

    Attributes:
        limit: chunk activations that a rank may hold; a forward leaves room for the chunks nearer to the
            loss, so that started micro batches can always finish.
        split: weight gradients are separate tasks.
        patience: a weight gradient waits for a pass that is about to arrive, if it would delay that
            pass by more than this part of itself (0: any delay; 1: never waits).
        window: micro batches of one route between its first forward and its last backward; 0: any.
        breadth: among forwards prefers the earlier chunk rather than the later one.
        group: micro batches that go through the chunks together where ``breadth`` is preferred; 0: all.
        alternate: after a backward prefers a forward rather than another backward.
        oldest: among backwards prefers the first micro batch rather than the first to arrive.
    """

    limit: float
    split: bool
    patience: float = 1.0
    window: int = 0
    breadth: bool = False
    group: int = 0
    alternate: bool = False
    oldest: bool = False


def both_preferences(limit: float, stages: int) -> list[Rules]:
    """Rules for waves and bidirectional pipelines with whole backwards; the best rule depends on the shape.

    Groups of p micro batches pass chunk by chunk (as in interleaved 1F1B) or as deep as they can; forwards
    and backwards alternate or backwards come first; the oldest backward first or the first to arrive.
    """
    return [
        Rules(limit, split=False, breadth=breadth, group=stages, alternate=alternate, oldest=oldest)
        for breadth in (False, True)
        for alternate in (False, True)
        for oldest in (False, True)
    ]


class Greedy(Schedule):
    """A schedule whose order is the shortest of greedy ones.

    Rules are greedy: where real times are almost equal, an order found with equal times can be better than
    one found with the real times. Both are tried.
    """

    @abstractmethod
    def rules(self, stages: int, micro_batches: int, chunks: int) -> list[Rules]:
        """Memory limits and preferences, each of which gives an order."""

    def handcrafted(self, stages: int, micro_batches: int) -> list[list[list[Task]]]:
        """Further orders, which are taken where they are shorter."""
        return []

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """At most one micro batch per stage."""
        return np.minimum(p, m)

    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """The order with the shortest period.

        Raises:
            InputError: the schedule cannot run with these numbers, or no rule leaves memory for one micro
                batch.
        """
        self.check(stages, micro_batches, chunks)
        routes = self.routes(stages, chunks)
        equal = WorkTimes.equal(len(routes[0]), self.splits_backward)
        times = times or equal
        route_of = [self.route_index(i, micro_batches) for i in range(micro_batches)]
        candidates = [
            greedy_orders(routes, route_of, stages, seconds, rule)
            for rule in self.rules(stages, micro_batches, chunks)
            for seconds in ((times,) if times == equal else (times, equal))
        ]
        candidates += self.handcrafted(stages, micro_batches)

        def length(orders: list[list[Task]]) -> tuple[float, float]:
            done = walk(self, stages, micro_batches, chunks, orders, times)
            return done.period, done.seconds

        return min(candidates, key=length)


def greedy_orders(
    routes: Sequence[Route], route_of: Sequence[int], stages: int, times: WorkTimes, rules: Rules
) -> list[list[Task]]:
    """Simulate all ranks and return the order of tasks of each.

    Args:
        routes: paths through the ranks.
        route_of: each micro batch's route.
        stages: ranks.
        times: per position.
        rules: memory and preferences.

    Raises:
        InputError: the limit leaves no room for one micro batch.
    """
    return _Greedy(routes, route_of, stages, times, rules).run()


class _Rank:
    def __init__(self) -> None:
        self.free_at = 0.0
        self.forwards: list[tuple[tuple[int, int], int, int]] = []
        self.backwards: list[tuple[float, int, int]] = []
        self.weights: deque[tuple[int, int]] = deque()
        self.resident = 0
        self.coming: list[float] = []
        self.order: list[Task] = []


class _Greedy:
    def __init__(
        self, routes: Sequence[Route], route_of: Sequence[int], stages: int, times: WorkTimes, rules: Rules
    ) -> None:
        self.routes, self.route_of, self.times, self.rules = routes, route_of, times, rules
        self.last = len(routes[0]) - 1
        self.ranks = [_Rank() for _ in range(stages)]
        # Chunks of each rank that are nearer to the loss than a position: room for one of each is kept, so
        # that started micro batches can finish.
        held_on = [
            [position for route in routes for position, (at, _) in enumerate(route) if at == rank]
            for rank in range(stages)
        ]
        self.room = [
            [sum(other > position for other in held_on[rank]) for position, (rank, _) in enumerate(route)]
            for route in routes
        ]
        self.open = [0] * len(routes)
        self.serial = 0
        self.events: list[tuple[float, int, int, str, int, int]] = []
        self.left = len(route_of) * len(routes[0]) * (3 if rules.split else 2)

    def run(self) -> list[list[Task]]:
        for micro_batch, route in enumerate(self.route_of):
            self.arrive(0.0, FORWARD, micro_batch, 0, self.routes[route][0][0])
        while self.events:
            now = self.events[0][0]
            touched: dict[int, None] = {}
            while self.events and self.events[0][0] <= now:
                _, _, rank, kind, micro_batch, position = heapq.heappop(self.events)
                touched[rank] = None
                if kind:
                    self.take_in(rank, kind, micro_batch, position, now)
            for rank in touched:
                self.serve(rank, now)
        if self.left:
            raise InputError(
                f"a limit of {self.rules.limit} chunk activations per rank leaves no room to work"
            )
        return [rank.order for rank in self.ranks]

    def arrive(self, time: float, kind: str, micro_batch: int, position: int, rank: int) -> None:
        """Data reaches a rank; without a kind, the rank looks for work."""
        self.serial += 1
        heapq.heappush(self.events, (time, self.serial, rank, kind, micro_batch, position))
        if kind:
            heapq.heappush(self.ranks[rank].coming, time)

    def take_in(self, number: int, kind: str, micro_batch: int, position: int, now: float) -> None:
        rank = self.ranks[number]
        if kind == FORWARD:
            heapq.heappush(rank.forwards, (self.depth(micro_batch, position), micro_batch, position))
        elif kind == BACKWARD:
            heapq.heappush(rank.backwards, (0.0 if self.rules.oldest else now, micro_batch, position))

    def depth(self, micro_batch: int, position: int) -> tuple[int, int]:
        """Sort key of forwards: the smallest goes first."""
        if not self.rules.breadth:
            return 0, -position
        group = micro_batch // self.rules.group if self.rules.group else 0
        return group, position // len(self.ranks)

    def serve(self, number: int, now: float) -> None:
        rank = self.ranks[number]
        if rank.free_at > now:
            return
        while rank.coming and rank.coming[0] <= now:
            heapq.heappop(rank.coming)
        place = self.forward_place(rank)
        turn = self.rules.alternate and place is not None and rank.order and rank.order[-1].kind == BACKWARD
        if rank.backwards and not turn:
            _, micro_batch, position = heapq.heappop(rank.backwards)
            self.backward(number, micro_batch, position, now)
        elif place is not None:
            _, micro_batch, position = rank.forwards[place]
            rank.forwards[place] = rank.forwards[-1]
            rank.forwards.pop()
            heapq.heapify(rank.forwards)
            self.forward(number, micro_batch, position, now)
        elif rank.weights and self.worth_it(rank, now):
            self.weight(number, now)

    def forward_place(self, rank: _Rank) -> int | None:
        """The preferred waiting forward that memory and window allow to start."""
        best = None
        for place, (_, micro_batch, position) in enumerate(rank.forwards):
            route = self.route_of[micro_batch]
            if rank.resident + 1 + self.room[route][position] > self.rules.limit:
                continue
            if position == 0 and self.rules.window and self.open[route] >= self.rules.window:
                continue
            if best is None or rank.forwards[place] < rank.forwards[best]:
                best = place
        return best

    def worth_it(self, rank: _Rank, now: float) -> bool:
        """Whether a weight gradient fits before the next arrival, or delays it within ``patience``."""
        if not rank.coming or rank.resident >= self.rules.limit:
            return True
        seconds = self.times.weight[rank.weights[0][1]]
        return now + seconds - rank.coming[0] <= self.rules.patience * seconds

    def start(
        self, number: int, kind: str, micro_batch: int, position: int, now: float, seconds: float
    ) -> float:
        rank = self.ranks[number]
        chunk = self.routes[self.route_of[micro_batch]][position][1]
        rank.order.append(Task(kind, micro_batch, chunk))
        rank.free_at = now + seconds
        self.left -= 1
        self.arrive(rank.free_at, "", -1, -1, number)
        return rank.free_at

    def pass_on(self, end: float, kind: str, micro_batch: int, position: int, number: int) -> None:
        there = self.routes[self.route_of[micro_batch]][position][0]
        hop = self.times.hop if there != number else 0.0
        self.arrive(end + hop, kind, micro_batch, position, there)

    def forward(self, number: int, micro_batch: int, position: int, now: float) -> None:
        end = self.start(number, FORWARD, micro_batch, position, now, self.times.forward[position])
        self.ranks[number].resident += 1
        if position == 0:
            self.open[self.route_of[micro_batch]] += 1
        if position == self.last:
            self.pass_on(end, BACKWARD, micro_batch, position, number)
        else:
            self.pass_on(end, FORWARD, micro_batch, position + 1, number)

    def backward(self, number: int, micro_batch: int, position: int, now: float) -> None:
        end = self.start(number, BACKWARD, micro_batch, position, now, self.times.backward[position])
        rank = self.ranks[number]
        if self.rules.split:
            rank.weights.append((micro_batch, position))
        else:
            rank.resident -= 1
        if position:
            self.pass_on(end, BACKWARD, micro_batch, position - 1, number)
        else:
            route = self.route_of[micro_batch]
            self.open[route] -= 1
            self.arrive(end, "", -1, -1, self.routes[route][0][0])

    def weight(self, number: int, now: float) -> None:
        rank = self.ranks[number]
        micro_batch, position = rank.weights.popleft()
        self.start(number, WEIGHT, micro_batch, position, now, self.times.weight[position])
        rank.resident -= 1
