"""Expands a step program into tasks with their order and predecessors."""

from __future__ import annotations

from simulator.engine.graph import NONE, TaskGraph
from simulator.schedules.base import BACKWARD, FORWARD, OUTPUT_FORWARD, OUTPUT_WEIGHT
from simulator.training.step_graph.rank import Expansion, Key, RankTasks
from simulator.training.step_graph.step import StepProgram, predecessors


def expand(program: StepProgram) -> TaskGraph:
    """The tasks of one step.

    Raises:
        InputError: the schedule cannot run with these numbers.
    """
    plan = Expansion(program)
    copies = [
        [RankTasks(plan, copy * program.stages + rank, rank, scale) for rank, scale in enumerate(slowdowns)]
        for copy, slowdowns in enumerate(plan.slowdowns)
    ]
    for ranks in copies:
        _connect(plan, ranks)
    _join_copies(plan.graph, copies)
    _update_beside(plan, [rank for ranks in copies for rank in ranks])
    _finish(plan, [rank for ranks in copies for rank in ranks])
    return plan.graph


def _connect(plan: Expansion, ranks: list[RankTasks]) -> None:
    """Make passes wait for the sends of other ranks."""
    sent: dict[Key, int] = {}
    for rank in ranks:
        sent.update(rank.sent)
    for rank in ranks:
        plan.graph.edges([sent[key] for key, _ in rank.waiting], [task for _, task in rank.waiting])
    if plan.program.output:
        for micro_batch in range(plan.program.micro_batches):
            _connect_output(plan, ranks, micro_batch)


def _connect_output(plan: Expansion, ranks: list[RankTasks], micro_batch: int) -> None:
    """Shares of the output layer wait for the last hidden states, its backward for all the shares."""
    graph = plan.graph
    forward, weight = (OUTPUT_FORWARD, micro_batch, 0), (OUTPUT_WEIGHT, micro_batch, 0)
    source = ranks[plan.route[micro_batch][plan.last][0]]
    hidden = source.output_sends[FORWARD, micro_batch, plan.last]
    for rank in ranks:
        graph.edge(hidden, rank.first[forward])
    summed = _together(graph, ranks, forward)
    for rank in ranks:
        graph.edge(summed, rank.first[weight])
    if plan.program.schedule.output_barriers == 2:
        summed = _together(graph, ranks, weight)
    graph.edge(summed, source.first[BACKWARD, micro_batch, plan.last])


def _together(graph: TaskGraph, ranks: list[RankTasks], key: Key) -> int:
    """A collective of all ranks after their passes of this key; returns the task that ends with it."""
    ready = graph.gate([rank.last[key] for rank in ranks], "barrier")
    for rank in ranks:
        graph.edge(ready, rank.output_sends[key])
    return graph.gate([rank.output_sends[key] for rank in ranks], "barrier")


def _join_copies(graph: TaskGraph, copies: list[list[RankTasks]]) -> None:
    """A data-parallel collective starts when the same rank of every group of replicas is ready."""
    if len(copies) == 1:
        return
    for same_rank in zip(*copies, strict=True):
        for same in zip(*(rank.data.collectives for rank in same_rank), strict=True):
            ready = graph.gate([task for _, after in same for task in after])
            for task, _ in same:
                graph.edge(ready, task)


def _update_beside(plan: Expansion, ranks: list[RankTasks]) -> None:
    """Updates off the device that run beside passes: the step ends when they have."""
    program = plan.program
    for rank in ranks if program.host_updates else ():
        work, tasks = program.host_updates[rank.rank], []
        begins = [rank.before_backward] if program.updates_from == "backward" else []
        first = [task for task in begins if task >= 0]
        for index, segment in enumerate(work):
            after = [tasks[other] for other in predecessors(work, index)] or first
            tasks.append(plan.tasks.add(rank.index, segment, NONE, after))


def _finish(plan: Expansion, ranks: list[RankTasks]) -> None:
    """The finish after a rank's last work and reductions: optimizer, parameter gathering."""
    graph, program = plan.graph, plan.program
    ready = [graph.gate([*rank.data.reduced, rank.previous, *rank.output_sends.values()]) for rank in ranks]
    if program.synchronous:
        ready = [graph.gate(ready, "barrier")] * len(ranks)
    for rank, after in zip(ranks, ready, strict=True):
        tasks: list[int] = []
        work = program.finish[rank.rank] if program.finish else ()
        for index, segment in enumerate(work):
            waits = [tasks[other] for other in predecessors(work, index)] or [after]
            tasks.append(plan.tasks.add(rank.index, segment, NONE, waits, rank.slowdown))
