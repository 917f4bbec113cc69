"""The data-parallel stream of one rank: parameters gathered ahead of use, gradients reduced after."""

from __future__ import annotations

from collections.abc import Sequence

from simulator.schedules import Task
from simulator.schedules.base import BACKWARD, FORWARD, WEIGHT
from simulator.training.step_graph.step import Attached, ChunkWork, StepProgram, StreamWork, meets
from simulator.training.step_graph.tasks import StepTasks


class DataStream:
    """Issues one rank's gathers and reductions in the order of its passes.

    Args:
        tasks: task graph to append to.
        rank: the rank's number in the graph.
        program: the step.
        order: the rank's work.
        works: the work of each of the rank's chunks.
    """

    def __init__(
        self,
        tasks: StepTasks,
        rank: int,
        program: StepProgram,
        order: Sequence[Task],
        works: dict[int, ChunkWork],
    ) -> None:
        self._tasks, self._rank, self._program = tasks, rank, program
        self.gathers: dict[int, tuple[Attached, ...]] = {}
        self.reductions: dict[int, tuple[Attached, ...]] = {}
        self._ends: dict[int, int] = {}
        """The last pass that uses parameters gathered in a pass, by place of that pass."""
        if any(work.forward_gathers or work.backward_gathers or work.reductions for work in works.values()):
            self._plan(order, works)
        self._queue: list[Attached] = []
        self._given_back: dict[int, range] = {}
        """Gathers whose use ends with a pass, by place."""
        for place in sorted(self.gathers):
            first = len(self._queue)
            self._queue += self.gathers[place]
            self._given_back[self._ends[place]] = range(first, len(self._queue))
        self._issued: list[int] = []
        self._used = self._unfreed = 0
        self._freed: dict[int, int] = {}
        self.beside = self._beside(order, works)
        """Places of passes whose own communication may meet this stream's on a link."""
        self.collectives: list[tuple[int, list[int]]] = []
        """Every collective with its predecessors on the rank, in order of issue."""
        self.reduced: list[int] = []
        self._ready: list[tuple[StreamWork, int, int]] = []
        """Reductions of completed gradients that are not issued yet."""

    def _plan(self, order: Sequence[Task], works: dict[int, ChunkWork]) -> None:
        """Find the passes that start a gather, and those that complete a gradient."""
        program = self._program
        reducing = WEIGHT if program.schedule.splits_backward else BACKWARD
        once = program.gather == "step"
        # Micro batches whose passes gather or reduce as one: those of a unit, or all.
        gathering = program.micro_batches if once else program.unit
        reduced = program.micro_batches if program.reduce == "step" else program.unit
        last_use = {(kind, chunk, i // gathering): place for place, (kind, i, chunk) in enumerate(order)}
        completes = {(kind, chunk, i // reduced): place for place, (kind, i, chunk) in enumerate(order)}
        for place, (kind, micro_batch, chunk) in enumerate(order):
            if kind not in (FORWARD, BACKWARD) or (once and kind == BACKWARD):
                continue
            gathers = works[chunk].forward_gathers if kind == FORWARD else works[chunk].backward_gathers
            key = kind, chunk, micro_batch // gathering
            if gathers and key in last_use:
                self.gathers[place], self._ends[place] = gathers, last_use.pop(key)
        for (kind, chunk, _), place in completes.items():
            if kind == reducing and works[chunk].reductions:
                self.reductions[place] = works[chunk].reductions

    def _beside(self, order: Sequence[Task], works: dict[int, ChunkWork]) -> range | set[int]:
        if not meets(works.values()):
            return range(0)
        if "pass" in (self._program.gather, self._program.reduce):
            return range(len(order))
        gathered = range(max(self.gathers, default=-1) + 1)
        return {*gathered, *range(min(self.reductions, default=len(order)), len(order))}

    def next_gather(self, item: int) -> int:
        """The task that gathers the parameters that the rank uses next, in this pass.

        Later gathers are issued up to the prefetch limit.
        """
        number = self._used
        self._used += 1
        self._issue(number + self._program.prefetch, item)
        self.issue_reductions()
        return self._issued[number]

    def _issue(self, until: int, item: int) -> None:
        while len(self._issued) <= min(until, len(self._queue) - 1):
            gather = self._queue[len(self._issued)]
            allowed = self._freed.get(len(self._issued) - self._program.prefetch - 1)
            task = self._collective(gather.work, item, [] if allowed is None else [allowed])
            self._issued.append(task)

    def free(self, task: int, place: int) -> None:
        """Free gathered parameters at the end of the last pass that uses them."""
        if self._program.gather != "step":
            for number in self._given_back.get(place, ()):
                self._give_back(number, task)

    def free_used(self, task: int) -> None:
        """Free, inside a pass, the parameters that segments up to this task have used."""
        if self._program.gather == "pass" and self._program.unit == 1:
            for number in range(self._unfreed, self._used):
                self._give_back(number, task)
            self._unfreed = self._used

    def _give_back(self, number: int, task: int) -> None:
        self._freed.setdefault(number, task)

    def reduce(self, work: StreamWork, item: int, after: int) -> list[int]:
        """Reduce gradients that a task has completed; return the tasks that computation must wait for.

        Without prefetching, the gather that the next kernels wait for is issued first, or follows the
        reduction on the same communicator.
        """
        program = self._program
        self._ready.append((work, item, after))
        if program.prefetch or program.in_turn or not program.overlap_gradients:
            self.issue_reductions()
        return [] if program.overlap_gradients else self.reduced[-1:]

    def issue_reductions(self) -> None:
        """Issue the reductions that are ready."""
        for work, item, after in self._ready:
            self.reduced.append(self._collective(work, item, [after]))
        self._ready.clear()

    def _collective(self, work: StreamWork, item: int, after: list[int]) -> int:
        task = self._tasks.add(self._rank, work, item, after)
        self.collectives.append((task, after))
        return task
