"""The task graph of a step: segments become tasks on their lanes, parts and links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from simulator.engine.graph import NONE, Flow, TaskGraph
from simulator.training.step_graph.step import NO_LOAD, Port, StepProgram, StreamWork
from simulator.training.step_graph.streams import COMPUTE


class StepTasks:
    """A task graph that takes segments.

    Ranks are those of the graph: groups of replicas one after another, in each the ranks of the pipeline.

    Args:
        program: says where ranks enter the links of each level.
    """

    def __init__(self, program: StepProgram) -> None:
        self.graph = TaskGraph(counted="micro batch")
        self._stages, self._ports = program.stages, program.ports
        self._thin = [dict(enumerate(copy.bandwidth)) if copy.bandwidth else {} for copy in program.replicas]
        self._links: dict[tuple[int, object], tuple[int, int]] = {}

    def add(
        self,
        rank: int,
        work: StreamWork,
        item: int = NONE,
        after: Iterable[int] = (),
        slowdown: float = 1.0,
    ) -> int:
        """Append a segment on its stream of a rank, and on the links of the rank; return its task.

        ``slowdown`` scales it if it computes.
        """
        graph, stream = self.graph, work.stream
        seconds = work.seconds * slowdown if stream is COMPUTE else work.seconds
        part = graph.part_of(work.part or stream.name)
        task = graph.add(graph.lane_of(rank, stream), seconds, work.name, part, item, after)
        if work.load is not NO_LOAD:
            level, share, sent = work.load
            if share and seconds > 0:
                rate = share * self._port(rank, level).share
                graph.flows[task] = Flow(rate, self._links_of(rank, level))
            if sent:
                graph.traffic[task] = sent
        return task

    def together(self, after: Sequence[int], name: str = "join") -> int:
        """A task that ends when others have ended."""
        return after[0] if len(after) == 1 else self.graph.gate(after, name)

    def wire(self, work: StreamWork, rank: int, there: int) -> Flow:
        """A transfer on the links out of a rank and into another."""
        level, share, _ = work.load
        rate = share * self._port(rank, level).share
        return Flow(rate, (self._links_of(rank, level)[0], self._links_of(there, level)[1]))

    def _port(self, rank: int, level: str) -> Port:
        place = rank % self._stages
        ports = self._ports.get(level)
        return ports[place] if ports else Port((level, place))

    def _links_of(self, rank: int, level: str) -> tuple[int, int]:
        """The links by which a rank leaves for a level and is entered from it, made on first use."""
        copy, place = divmod(rank, self._stages)
        port = self._port(rank, level)
        links = self._links.get((copy, port.link))
        if links is None:
            capacity = port.bandwidth * self._thin[copy].get(place, 1.0)
            links = self._links[copy, port.link] = (
                self.graph.add_link(capacity),
                self.graph.add_link(capacity),
            )
        return links
