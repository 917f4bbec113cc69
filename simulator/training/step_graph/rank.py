"""The tasks of one rank of a step, in the order in which it issues them."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from typing import NamedTuple

from simulator.engine.clock import Clock
from simulator.engine.graph import Flow
from simulator.schedules import Task, WorkTimes
from simulator.schedules.base import BACKWARD, FORWARD, OFFLOAD, OUTPUT_FORWARD, OUTPUT_WEIGHT, RELOAD, WEIGHT
from simulator.training.step_graph.data_stream import DataStream
from simulator.training.step_graph.step import NO_LOAD, Pass, StepProgram, StreamWork, predecessors
from simulator.training.step_graph.streams import (
    COMPUTE,
    FROM_HOST,
    NAMES,
    OUTPUT_LAYER,
    PASS,
    PIPELINE,
    TO_HOST,
)
from simulator.training.step_graph.tasks import StepTasks

Key = tuple[str, int, int]
"""Kind, micro batch and position."""


class Expansion:
    """Shared state of all ranks of one expansion."""

    def __init__(self, program: StepProgram) -> None:
        self.program, self.tasks = program, StepTasks(program)
        self.graph = self.tasks.graph
        schedule, stages, chunks = program.schedule, program.stages, program.chunks
        m = program.micro_batches
        self._blocks: dict[tuple[int, float], float] = {}
        self.orders = schedule.orders(stages, m, chunks, self._times())
        routes = schedule.routes(stages, chunks)
        self.position = {place: index for route in routes for index, place in enumerate(route)}
        self.last = len(routes[0]) - 1
        self.route = [routes[schedule.route_index(micro_batch, m)] for micro_batch in range(m)]
        self.slowdowns = [copy.slowdown or (1.0,) * stages for copy in program.replicas]

    def _times(self) -> WorkTimes:
        work, output = self.program.work, self.program.output
        return WorkTimes(
            forward=[self.block_seconds(chunk_work.forward, 1.0) for chunk_work in work],
            backward=[self.block_seconds(chunk_work.backward, 1.0) for chunk_work in work],
            weight=[self.block_seconds(chunk_work.weight, 1.0) for chunk_work in work],
            hop=self.program.transfer.seconds,
            output=self.block_seconds(output.forward, 1.0) if output else 0.0,
        )

    def block_seconds(self, work: Pass, slowdown: float) -> float:
        """Seconds of a pass without outside dependencies, timed by the clock once."""
        if not work:
            return 0.0
        if len(work) == 1 and work[0].stream == COMPUTE:
            return work[0].seconds * slowdown
        key = (id(work), slowdown)
        if key not in self._blocks:
            alone = StepTasks(self.program)
            tasks: list[int] = []
            for index, segment in enumerate(work):
                after = [tasks[other] for other in predecessors(work, index)]
                tasks.append(alone.add(0, replace(segment, load=NO_LOAD), after=after, slowdown=slowdown))
            _, ends = Clock(alone.graph, self.program.contention).run()
            self._blocks[key] = float(ends.max(initial=0.0))
        return self._blocks[key]


class Visit(NamedTuple):
    """Properties of a pass through one chunk that all micro batches share."""

    position: int
    segments: Pass
    seconds: float
    name: str
    part: int
    sent: tuple[tuple[str, float], ...]
    needs_input: bool
    sends_to: int
    """Position that receives the result; -1: none."""
    memory: float
    """Bytes allocated at its start; negative: freed at its end."""


class RankTasks:
    """One rank's tasks, added in the order in which it issues them."""

    def __init__(self, plan: Expansion, index: int, rank: int, slowdown: float) -> None:
        self.plan, self.index, self.rank, self.slowdown = plan, index, rank, slowdown
        self.program, self.tasks, self.graph = plan.program, plan.tasks, plan.graph
        self.compute = self.graph.lane_of(index, COMPUTE)
        self.sends = self.graph.lane_of(index, PIPELINE)
        self.sending = self.graph.part_of(PIPELINE.name)
        order = plan.orders[rank]
        chunks = {chunk: position for (owner, chunk), position in plan.position.items() if owner == rank}
        works = {chunk: self.program.work[position] for chunk, position in chunks.items()}
        self.visits = {
            (kind, chunk): self._visit(kind, position)
            for chunk, position in chunks.items()
            for kind in (FORWARD, BACKWARD, WEIGHT)
        }
        self.data = DataStream(self.tasks, index, self.program, order, works)
        self.wires: dict[int, Flow] = {}
        """Transfers to other ranks of the pipeline, made on first use."""
        self.sent: dict[Key, int] = {}
        """The task that carries the input of a pass, by that pass."""
        self.waiting: list[tuple[Key, int]] = []
        """Tasks that need an input which another rank may send."""
        self.first: dict[Key, int] = {}
        self.last: dict[Key, int] = {}
        self.output_sends: dict[Key, int] = {}
        """Collectives of a vocabulary-parallel output layer, by the pass that they follow."""
        self.reloaded: dict[tuple[int, int], int] = {}
        self.previous = -1
        self.before_backward = -1
        """The pass before the last backward pass."""
        self.blocked_by: list[int] = []
        """Tasks that the next pass waits for, besides the previous pass."""
        self.leaving: list[int] = []
        """Copies to the host that the next pass overlaps; the pass after it needs their memory."""
        places = iter(enumerate(order))
        for place, task in places:
            if task.kind == BACKWARD:
                self.before_backward = self.previous
            if task.kind in (OFFLOAD, RELOAD):
                self._copy(task)
            elif task.kind in (OUTPUT_FORWARD, OUTPUT_WEIGHT):
                self._output(task)
            elif self._is_pair(order[place : place + 2]):
                self._pair(place, task, next(places)[1])
            else:
                self._pass(place, task)

    def _visit(self, kind: str, position: int) -> Visit:
        work, last = self.program.work[position], self.plan.last
        late = work.activation_for_weight if self.program.schedule.splits_backward else 0.0
        segments, memory, to = {
            FORWARD: (work.forward, work.activation, position + 1),
            BACKWARD: (work.backward, late - work.activation, position - 1),
            WEIGHT: (work.weight, -late, -1),
        }[kind]
        sent: dict[str, float] = {}
        for level, size in (traffic for segment in segments for traffic in segment.load.sent):
            sent[level] = sent.get(level, 0.0) + size
        return Visit(
            position=position,
            segments=segments,
            seconds=self.plan.block_seconds(segments, self.slowdown),
            name=NAMES[kind],
            part=self.graph.part_of(PASS),
            sent=tuple(sent.items()),
            needs_input=(kind == FORWARD and position > 0) or (kind == BACKWARD and position < last),
            sends_to=to if to <= last else -1,
            memory=memory,
        )

    def _after_previous(self) -> list[int]:
        return [self.previous, *self.blocked_by] if self.previous >= 0 else self.blocked_by

    def _pass(self, place: int, task: Task) -> None:
        data, visit = self.data, self.visits[task.kind, task.chunk]
        item = self.graph.add_item(visit.name, task.micro_batch)
        roots: Sequence[int]
        apart = self.program.detail or place in data.gathers or place in data.reductions
        if apart or place in data.beside:
            roots, last = finished(self._segments(place, visit.segments, item, self._slowed(task)))
        else:
            seconds = visit.seconds
            if self.program.paces:
                seconds = self.plan.block_seconds(visit.segments, self._slowed(task))
            last = self.graph.add(self.compute, seconds, visit.name, visit.part, item, self.blocked_by)
            roots = (last,)
            if visit.sent:
                self.graph.traffic[last] = visit.sent
        self.previous, self.blocked_by, self.leaving = last, self.leaving, []
        self._passed(place, task, item, roots, last)

    def _slowed(self, task: Task) -> float:
        """Kernel time of a pass over that of the mean micro batch on a device of usual speed."""
        paces = self.program.paces
        return self.slowdown * paces[task.micro_batch] if paces else self.slowdown

    def _is_pair(self, tasks: Sequence[Task]) -> bool:
        """Whether a forward and a backward run at once, to hide the communication that either has."""
        if not self.program.schedule.overlaps_passes or len(tasks) < 2 or tasks[0].chunk == tasks[1].chunk:
            return False
        if (tasks[0].kind, tasks[1].kind) != (FORWARD, BACKWARD):
            return False
        segments = (segment for task in tasks for segment in self.visits[task.kind, task.chunk].segments)
        return any(segment.stream != COMPUTE for segment in segments)

    def _pair(self, place: int, *tasks: Task) -> None:
        """Two passes at once: each computes while the other communicates."""
        visits = [self.visits[task.kind, task.chunk] for task in tasks]
        passes = [visit.segments for visit in visits]
        items = [
            self.graph.add_item(visit.name, task.micro_batch)
            for visit, task in zip(visits, tasks, strict=True)
        ]
        steps = [
            self._segments(place + index, segments, item, self._slowed(task))
            for index, (segments, item, task) in enumerate(zip(passes, items, tasks, strict=True))
        ]
        done = [0, 0]
        while all(count < len(segments) for count, segments in zip(done, passes, strict=True)):
            behind = int(done[1] * len(passes[0]) < done[0] * len(passes[1]))
            next(steps[behind])
            done[behind] += 1
        results = [finished(step) for step in steps]
        self.previous = self.graph.gate([last for _, last in results])
        self.blocked_by, self.leaving = self.leaving, []
        for index, (task, item, (roots, last)) in enumerate(zip(tasks, items, results, strict=True)):
            self._passed(place + index, task, item, roots, last)

    def _passed(self, place: int, task: Task, item: int, roots: Sequence[int], last: int) -> None:
        """Inputs, memory and sends of a pass whose tasks have been added."""
        kind, micro_batch, chunk = task
        plan, graph, visit = self.plan, self.graph, self.visits[kind, chunk]
        if self.data.gathers:
            self.data.free(last, place)
        if place in self.data.reductions and self.program.reduce == "pass" and self.program.unit == 1:
            # A backward ends with waiting for them (FSDP2: FSDPParamGroup.finalize_backward; DeepSpeed,
            # stage_1_and_2.py: independent_gradient_partition_epilogue).
            self.blocked_by.append(self.data.reduced[-1])
        key = kind, micro_batch, visit.position
        if visit.needs_input:
            for root in roots:
                self.waiting.append((key, root))
        if visit.memory:
            at_end = visit.memory < 0
            graph.memory.append((last if at_end else roots[0], at_end, self.index, visit.memory))
        if visit.position == plan.last:
            self.first[key], self.last[key] = roots[0], last
            if kind == FORWARD and self.program.output:
                self._to_output(key, self.program.output.broadcast, item, last)
        if self.reloaded and kind == BACKWARD and (micro_batch, visit.position) in self.reloaded:
            graph.edge(self.reloaded.pop((micro_batch, visit.position)), roots[0])
        if visit.sends_to >= 0:
            self._send(task, item, visit.sends_to, last)

    def _segments(
        self, place: int, segments: Pass, item: int, slowdown: float
    ) -> Generator[None, None, tuple[list[int], int]]:
        """Add the segments of a pass one by one, with the collectives that they wait for or complete.

        Returns:
            The tasks that wait for nothing else in the pass, and one that ends with the pass.
        """
        gathered = {attached.segment for attached in self.data.gathers.get(place, ())}
        reductions = self.data.reductions.get(place, ())
        before_pass = self._after_previous()
        tasks: list[int] = []
        roots: list[int] = []
        inner: set[int] = set()
        reduced: list[int] = []
        for index, segment in enumerate(segments):
            others = predecessors(segments, index)
            inner.update(others)
            after = [*([tasks[other] for other in others] if others else before_pass), *reduced]
            if index in gathered:
                if tasks:
                    self.data.free_used(tasks[-1])
                after.append(self.data.next_gather(item))
            task = self.tasks.add(self.index, segment, item, after, slowdown)
            tasks.append(task)
            if not others:
                roots.append(task)
            reduced = []
            for attached in reductions:
                if attached.segment == index:
                    reduced += self.data.reduce(attached.work, item, task)
            yield
        self.data.issue_reductions()
        ends = [task for index, task in enumerate(tasks) if index not in inner] + reduced
        return roots, self.tasks.together(ends)

    def _send(self, task: Task, item: int, to: int, ended: int) -> None:
        """Send the result to the next position, over links if another rank holds it."""
        kind, micro_batch, _ = task
        there = self.plan.route[micro_batch][to][0]
        if there != self.rank:
            transfer = self._transfer(there)
            ended = self.graph.add(self.sends, transfer.seconds, transfer.name, self.sending, item, (ended,))
            if transfer.load.share and transfer.seconds > 0:
                self.graph.flows[ended] = self.wires.get(there) or self._wire(there)
            if transfer.load.sent:
                self.graph.traffic[ended] = transfer.load.sent
            if self.program.blocking:
                self.blocked_by.append(ended)
        self.sent[kind, micro_batch, to] = ended

    def _wire(self, there: int) -> Flow:
        """Link demand of a transfer from this rank to another."""
        other = self.index - self.rank + there
        self.wires[there] = self.tasks.wire(self._transfer(there), self.index, other)
        return self.wires[there]

    def _transfer(self, there: int) -> StreamWork:
        return self.program.transfers.get((self.rank, there), self.program.transfer)

    def _allocate(self, task: int, at_end: bool, size: float) -> None:
        if size:
            self.graph.memory.append((task, at_end, self.index, size))

    def _copy(self, task: Task) -> None:
        """Move a chunk's activations to the host or back, issued after the work before it in the order."""
        kind, micro_batch, chunk = task
        position = self.plan.position[self.rank, chunk]
        stream = TO_HOST if kind == OFFLOAD else FROM_HOST
        work = self.program.work[position]
        copy = replace(work.offload, name=NAMES[kind], stream=stream)
        item = self.graph.add_item(copy.name, micro_batch)
        after = [self.previous] if self.previous >= 0 else []
        number = self.tasks.add(self.index, copy, item, after)
        place = micro_batch, position
        if kind == OFFLOAD:
            self._allocate(number, True, -work.activation)
            self.leaving.append(number)
        else:
            self.graph.edge(self.reloaded[place], number)
            self._allocate(number, False, work.activation)
        self.reloaded[place] = number

    def _output(self, task: Task) -> None:
        """This rank's share of a vocabulary-parallel output layer, and the barrier that follows it."""
        output = self.program.output
        if output is None:
            return
        forward = task.kind == OUTPUT_FORWARD
        seconds = self.plan.block_seconds(output.forward if forward else output.weight, self.slowdown)
        name, part = NAMES[task.kind], self.graph.part_of(OUTPUT_LAYER)
        item = self.graph.add_item(name, task.micro_batch)
        number = self.graph.add(self.compute, seconds, name, part, item, self.blocked_by)
        self.previous, self.blocked_by = number, []
        key = task.kind, task.micro_batch, 0
        self.first[key] = self.last[key] = number
        self._allocate(number, not forward, output.memory if forward else -output.memory)
        if forward or self.program.schedule.output_barriers == 2:
            self._to_output(key, output.barrier, item, number)

    def _to_output(self, key: Key, work: StreamWork, item: int, after: int) -> None:
        self.output_sends[key] = self.tasks.add(self.index, work, item, (after,))


def finished(steps: Generator[None, None, tuple[list[int], int]]) -> tuple[list[int], int]:
    """Take all remaining steps and return their result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
