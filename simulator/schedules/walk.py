"""Walk a schedule's orders: their makespan, the activations they hold, and whether they deadlock."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from core.errors import InputError
from core.records import record
from simulator.schedules.base import (
    BACKWARD,
    FORWARD,
    OFFLOAD,
    OUTPUT_FORWARD,
    OUTPUT_WEIGHT,
    RELOAD,
    WEIGHT,
    Schedule,
    Task,
    WorkTimes,
)

Node = tuple[str, int, int, int]
"""Kind, micro batch, position of the model (0 for work without one) and rank."""


@record()
class Walk:
    """Result of running the orders of all ranks without contention.

    Attributes:
        seconds: from the first forward to the end of the last task.
        period: longest time of one rank from the start of its first task to the end of its last: the time
            between steps where ranks do not synchronise at the end of a step.
        peak: peak activations of each rank, in micro batches of all its layers.
        starts, ends: per rank, when each task of its order starts and ends.
    """

    seconds: float
    period: float
    peak: list[float]
    starts: list[list[float]]
    ends: list[list[float]]


def walk(
    schedule: Schedule,
    stages: int,
    micro_batches: int,
    chunks: int,
    orders: list[list[Task]],
    times: WorkTimes | None = None,
) -> Walk:
    """Run the order of every rank; each task waits for its inputs.

    Raises:
        InputError: a deadlock.
    """
    routes = schedule.routes(stages, chunks)
    positions = len(routes[0])
    times = times or WorkTimes.equal(positions, schedule.splits_backward)
    needs = _Needs(schedule, stages, micro_batches, chunks)
    seconds = {FORWARD: times.forward, BACKWARD: times.backward, WEIGHT: times.weight}
    ends: dict[Node, float] = {}
    starts: list[list[float]] = [[] for _ in orders]
    ended: list[list[float]] = [[] for _ in orders]
    free = [0.0] * stages
    waiting: dict[Node, list[int]] = {}
    runnable = list(range(stages))
    while runnable:
        rank = runnable.pop()
        order, done = orders[rank], starts[rank]
        while len(done) < len(order):
            task = order[len(done)]
            node = needs.node(task, rank)
            ready = free[rank]
            missing = None
            for other in needs.before(node):
                if other not in ends:
                    missing = other
                    break
                hop = times.hop if other[3] != rank else 0.0
                ready = max(ready, ends[other] + hop)
            if missing is not None:
                waiting.setdefault(missing, []).append(rank)
                break
            done.append(ready)
            if task.kind in seconds:
                pace = times.paces[node[1]] if times.paces else 1.0
                free[rank] = ends[node] = ready + pace * seconds[task.kind][node[2]]
            elif task.kind in (OUTPUT_FORWARD, OUTPUT_WEIGHT):
                free[rank] = ends[node] = ready + times.output
            else:
                ends[node] = ready
            ended[rank].append(ends[node])
            runnable += waiting.pop(node, ())
    stuck = [rank for rank in range(stages) if len(starts[rank]) < len(orders[rank])]
    if stuck:
        task = orders[stuck[0]][len(starts[stuck[0]])]
        raise InputError(
            f"the schedule {schedule.name!r} deadlocks with {stages} stages, {micro_batches} micro batches "
            f"and {chunks} chunks: rank {stuck[0]} never starts {task}"
        )
    period = max(end - begin[0] for end, begin in zip(free, starts, strict=True) if begin)
    share = stages / positions
    peak = [share * held_at_most(order, schedule.splits_backward) for order in orders]
    return Walk(max(free), period, peak, starts, ended)


MOST_WALKED = 4
"""Micro batches a stage that `stretched` walks; in longer steps each further one waits as these do."""


def stretched(
    schedule: Schedule, stages: int, chunks: int, paces: Sequence[float], ends: tuple[float, float] = (1, 1)
) -> float:
    """Makespan of unequal micro batches over that of equal ones.

    Args:
        schedule: the pipeline schedule.
        stages, chunks: pipeline stages, and chunks of each.
        paces: time of each micro batch over that of the mean one.
        ends: time of the first and the last stage over that of the others.
    """
    if stages == 1:
        return 1.0
    count = min(len(paces), MOST_WALKED * stages)
    sample = [paces[index * len(paces) // count] for index in range(count)]
    mean, route = math.fsum(sample) / count, schedule.routes(stages, chunks)[0]
    equal = WorkTimes.equal(len(route), schedule.splits_backward)
    scale = {0: ends[0], stages - 1: ends[1]}
    scales = [scale.get(rank, 1.0) for rank, _ in route]
    forward, backward = (
        [ratio * unit for ratio, unit in zip(scales, units, strict=True)]
        for units in (equal.forward, equal.backward)
    )
    times = replace(equal, forward=forward, backward=backward, weight=scales)
    unequal = replace(times, paces=[pace / mean for pace in sample])
    orders = schedule.orders(stages, count, chunks)
    waiting, even = (walk(schedule, stages, count, chunks, orders, each).seconds for each in (unequal, times))
    # One micro batch more adds three units a chunk of the slowest stage, and the waits of those walked.
    further = len(paces) - count
    longer = even + further * 3.0 * len(route) / stages * max(scales)
    return 1.0 + (waiting - even) * len(paces) / count / longer


def held_at_most(order: list[Task], split: bool) -> int:
    """Peak number of chunk activations of a rank, by the order of its tasks.

    Offloaded activations are held until the pass that overlaps their copy has ended.
    """
    gives_back = WEIGHT if split else BACKWARD
    resident = peak = leaving = 0
    for task in order:
        if task.kind == OFFLOAD:
            leaving += 1
            continue
        if task.kind in (FORWARD, RELOAD):
            resident += 1
            peak = max(peak, resident)
        elif task.kind == gives_back:
            resident -= 1
        if task.kind != RELOAD:
            resident, leaving = resident - leaving, 0
    return peak


class _Needs:
    """Predecessors of each task."""

    def __init__(self, schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> None:
        routes = schedule.routes(stages, chunks)
        self.stages, self.barriers = stages, schedule.output_barriers
        self.route = [routes[schedule.route_index(i, micro_batches)] for i in range(micro_batches)]
        self.position = {place: index for route in routes for index, place in enumerate(route)}
        self.last = len(routes[0]) - 1

    def node(self, task: Task, rank: int) -> Node:
        shared = task.kind in (OUTPUT_FORWARD, OUTPUT_WEIGHT)
        return task.kind, task.micro_batch, 0 if shared else self.position[rank, task.chunk], rank

    def at(self, kind: str, micro_batch: int, position: int) -> Node:
        return kind, micro_batch, position, self.route[micro_batch][position][0]

    def before(self, node: Node) -> list[Node]:
        kind, i, position, rank = node
        if kind == FORWARD:
            return [self.at(FORWARD, i, position - 1)] if position else []
        if kind == BACKWARD and position < self.last:
            return [self.at(BACKWARD, i, position + 1), self.at(FORWARD, i, position)]
        if kind == BACKWARD and self.barriers:
            passed = OUTPUT_FORWARD if self.barriers == 1 else OUTPUT_WEIGHT
            return [(passed, i, 0, other) for other in range(self.stages)]
        if kind == OUTPUT_FORWARD:
            return [self.at(FORWARD, i, self.last)]
        if kind == OUTPUT_WEIGHT:
            return [(OUTPUT_FORWARD, i, 0, other) for other in range(self.stages)]
        earlier = {BACKWARD: FORWARD, WEIGHT: BACKWARD, OFFLOAD: FORWARD, RELOAD: OFFLOAD}[kind]
        return [(earlier, i, position, rank)]


def validate(schedule: Schedule, stages: int, micro_batches: int, chunks: int) -> Walk:
    """Check that a schedule runs a whole training step.

    Every forward, backward (and weight gradient) of every micro batch and position happens once, on the rank
    that the route says; each waits for what it needs; offloaded activations are copied back before their
    backward; nothing deadlocks; and no rank holds more activations than the schedule states.

    Returns:
        The walk with equal times.

    Raises:
        InputError: with what is wrong.
    """
    orders = schedule.orders(stages, micro_batches, chunks)
    _check_complete(schedule, stages, micro_batches, chunks, orders)
    result = walk(schedule, stages, micro_batches, chunks, orders)
    for rank, (order, peak) in enumerate(zip(orders, result.peak, strict=True)):
        _check_copies(schedule, rank, order)
        stated = float(schedule.in_flight(stages, micro_batches, chunks, rank))
        if peak > stated + 1e-9:
            raise InputError(
                f"the schedule {schedule.name!r} holds {peak:g} micro batches on rank {rank} of {stages} "
                f"and states {stated:g}"
            )
    return result


def _check_complete(
    schedule: Schedule, stages: int, micro_batches: int, chunks: int, orders: list[list[Task]]
) -> None:
    routes = schedule.routes(stages, chunks)
    kinds = (FORWARD, BACKWARD, WEIGHT) if schedule.splits_backward else (FORWARD, BACKWARD)
    needed = Counter(
        (rank, Task(kind, i, chunk))
        for i in range(micro_batches)
        for rank, chunk in routes[schedule.route_index(i, micro_batches)]
        for kind in kinds
    )
    if schedule.output_barriers:
        shares = (OUTPUT_FORWARD, OUTPUT_WEIGHT)
        needed.update(
            (rank, Task(kind, i, 0))
            for i in range(micro_batches)
            for rank in range(stages)
            for kind in shares
        )
    counted = Counter(
        (rank, task)
        for rank, order in enumerate(orders)
        for task in order
        if task.kind not in (OFFLOAD, RELOAD)
    )
    wrong = (counted - needed) + (needed - counted)
    if wrong:
        rank, task = next(iter(wrong))
        raise InputError(
            f"the schedule {schedule.name!r} runs {task} {counted[rank, task]} times on rank {rank}, "
            f"not {needed[rank, task]}"
        )


def _check_copies(schedule: Schedule, rank: int, order: list[Task]) -> None:
    """Check that offloaded activations are back before their backward."""
    away: set[tuple[int, int]] = set()
    for kind, micro_batch, chunk in order:
        if kind == OFFLOAD:
            away.add((micro_batch, chunk))
        elif kind == RELOAD:
            away.discard((micro_batch, chunk))
        elif kind == BACKWARD and (micro_batch, chunk) in away:
            raise InputError(
                f"the schedule {schedule.name!r} runs the backward of micro batch {micro_batch}, chunk "
                f"{chunk} on rank {rank} while its activations are on the host"
            )
