"""Passes through the chunks of a model, layer after layer, from the costs of one layer."""

from __future__ import annotations

from dataclasses import replace

from hwmodels.cluster import Cluster
from simulator.engine.graph import Stream
from simulator.training.pass_costs import PassCosts
from simulator.training.step_graph.loads import load_of, scalar
from simulator.training.step_graph.step import LinkDemand, Pass, StreamWork
from simulator.training.step_graph.streams import COMPUTE, CONTEXT, EXPERT, PASS, TENSOR


class StagePasses:
    """One pass through a chunk, layer after layer.

    Communication that a pass hides starts with its kernels, on its own stream; the rest follows them.

    Args:
        name: prefix of its segments' names.
        cluster: its communication crosses the links of this cluster.
    """

    def __init__(self, name: str, cluster: Cluster) -> None:
        self._name, self._cluster = name, cluster
        self._loads: dict[int, LinkDemand] = {}
        """Link demand of transfers, by their ids: layers repeat them."""
        self._segments: list[StreamWork] = []
        self._ends: tuple[int, ...] = ()
        self._copies: list[StreamWork] = []
        self.layers: list[int] = []
        """Index of each layer's first segment."""

    def begin_layer(self) -> None:
        """Begin the next layer."""
        self.layers.append(len(self._segments))

    def wait(self, name: str, seconds: float) -> None:
        """Append time in which the device waits for the host."""
        if seconds > 0:
            self._append(StreamWork(f"{self._name} {name}", seconds, COMPUTE, name))

    def last_segment(self, layer: int) -> int:
        """The last segment of a layer (of those that were begun, in order)."""
        ends = [*self.layers[1:], len(self._segments)]
        return max(ends[layer] - 1, 0)

    def done(self) -> Pass:
        """The whole pass; never empty."""
        return (*self._segments, *self._copies) or (StreamWork("nothing", 0.0, COMPUTE, PASS),)

    def add(
        self,
        name: str,
        costs: PassCosts,
        share: float = 1.0,
        part: str = "",
    ) -> None:
        """Append the kernels and communication of a pass through one layer (or a share of it).

        Args:
            name: suffix of the segments' names in reports.
            costs: costs of one pass through the whole layer.
            share: share of the layer, 0 to 1.
            part: part of the breakdown for all its kernels; by default each kernel's class.
        """
        name, before = f"{self._name} {name}", self._ends
        kernels, device = scalar(costs.kernels), scalar(costs.work.device)
        exposed: list[StreamWork] = []
        hidden: list[StreamWork] = []
        for stream, transfer in ((TENSOR, costs.tensor), (CONTEXT, costs.context), (EXPERT, costs.expert)):
            total, beside = scalar(transfer.total), scalar(transfer.hidden)
            if id(transfer) not in self._loads:
                self._loads[id(transfer)] = load_of(self._cluster, transfer.cost)
            load = self._loads[id(transfer)]
            for segments, seconds in ((exposed, total - beside), (hidden, beside)):
                if seconds > 1e-12:
                    segments.append(
                        StreamWork(
                            f"{name} {stream.name}",
                            share * seconds,
                            stream,
                            after=before,
                            load=load.part(share * seconds / total),
                        )
                    )
        running: list[int] = []
        for kind, seconds in costs.work.seconds.items():
            if scalar(seconds) > 0:
                time = share * scalar(seconds) * kernels / device
                self._append(StreamWork(f"{name} {kind}", time, COMPUTE, part or kind))
                # On its own stream, but after the segment that a gather of parameters may hold up.
                running += [self._beside(segment) for segment in hidden]
                hidden.clear()
        for segment in exposed:
            self._append(segment)
        self._ends += tuple(running)

    def copy(self, stream: Stream, seconds: float, units: int, in_turn: float = 0.0) -> None:
        """Append copies to or from another tier.

        Args:
            stream: of the copies.
            seconds: of copies beside kernels, in equal parts behind the layers of each of ``units`` runs.
            units: at most one a layer.
            in_turn: seconds for which kernels wait.
        """
        units = min(units, len(self.layers))
        for last in last_of(self, units) if seconds > 0 else ():
            self._copies.append(StreamWork(f"{self._name} copy", seconds / units, stream, after=(last,)))
        if in_turn > 0:
            self._append(StreamWork(f"{self._name} copy", in_turn, stream))

    def _beside(self, segment: StreamWork) -> int:
        self._segments.append(segment)
        return len(self._segments) - 1

    def _append(self, segment: StreamWork) -> None:
        self._segments.append(replace(segment, after=self._ends))
        self._ends = (len(self._segments) - 1,)


def first_of(layers: list[int], units: int) -> list[int]:
    """The first segment of each of ``units`` runs of layers."""
    return [layers[len(layers) * unit // units] for unit in range(units)]


def last_of(passes: StagePasses, units: int) -> list[int]:
    """The last segment of each of ``units`` runs of layers."""
    count = len(passes.layers)
    return [passes.last_segment(count * (unit + 1) // units - 1) for unit in range(units)]
