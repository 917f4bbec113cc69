"""A training step for the engine: the work of every rank, independent of models and clusters.

``step_graph.build`` fills it in from costs; ``step_graph.expand`` turns it into tasks. One pipeline stands
for all tensor-, context- and data-parallel ranks that do the same.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from simulator.engine.clock import Contention
from simulator.engine.graph import Stream
from simulator.schedules import Schedule
from simulator.training.step_graph.streams import COMPUTE


class LinkDemand(NamedTuple):
    """Demand of a communication on links while it runs alone."""

    level: str = ""
    """The level of the topology that it keeps busiest."""
    share: float = 0.0
    """Part that it uses of its rank's share of the link to that level; it takes longer when other
    communication needs the link. 1 if only bytes set its time, less if latencies do."""
    sent: tuple[tuple[str, float], ...] = ()
    """Bytes by level, for the account of traffic."""

    def part(self, share: float) -> LinkDemand:
        """The demand of a part of the communication."""
        return self._replace(sent=tuple((level, share * size) for level, size in self.sent))


NO_LOAD = LinkDemand()


@dataclass(frozen=True)
class StreamWork:
    """A run of work on one stream of a rank."""

    name: str
    seconds: float
    stream: Stream = COMPUTE
    part: str = ""
    """The part of the breakdown that it counts for; empty: the part named as its stream."""
    after: tuple[int, ...] | None = None
    """Which segments of the same pass it waits for, by place; None: the one before it."""
    load: LinkDemand = NO_LOAD
    """Its demand on links."""


class Port(NamedTuple):
    """The link by which the devices of a rank enter a level; ranks behind the same link contend for it."""

    link: Hashable
    bandwidth: float = 1.0
    """B/s of the link, each direction."""
    share: float = 1.0
    """B/s of it that the devices of the rank use together at full load."""


Pass = tuple[StreamWork, ...]


@dataclass(frozen=True)
class Attached:
    """A collective of the data-parallel stream that belongs to one segment of a pass.

    A gather must have ended before the segment starts; a reduction may start when it has ended.
    """

    segment: int
    work: StreamWork


@dataclass(frozen=True)
class ChunkWork:
    """Costs of one micro batch at one position of the model: seconds and bytes of one rank.

    ``backward`` is the whole backward, recomputation included; where the schedule splits it, it is
    the input gradient alone and ``weight`` the rest.
    """

    forward: Pass
    backward: Pass
    weight: Pass = ()
    activation: float = 0.0
    """Bytes that live from the forward's start to the backward's end."""
    activation_for_weight: float = 0.0
    """Bytes that live on until the weight gradient's end, where the schedule splits the backward."""
    forward_gathers: tuple[Attached, ...] = ()
    backward_gathers: tuple[Attached, ...] = ()
    reductions: tuple[Attached, ...] = ()
    """Reductions of the backward pass, or of the weight pass where the schedule splits the backward."""
    offload: StreamWork = StreamWork("offload", 0.0)
    """The copy of activations to the host (and back), where the schedule offloads them."""


@dataclass(frozen=True)
class OutputWork:
    """A vocabulary-parallel output layer: every rank's share of it, for one micro batch."""

    forward: Pass
    """"S": logits, local softmax and, with one barrier, the local input gradient."""
    weight: Pass
    """"T": work after the barrier."""
    broadcast: StreamWork
    barrier: StreamWork
    memory: float = 0.0
    """Bytes that live from "S" to "T" on every rank."""


@dataclass(frozen=True)
class Replicas:
    """Equal data-parallel replicas.

    ``slowdown`` scales the computation of each pipeline rank, ``bandwidth`` the bandwidth of its links.
    """

    count: int = 1
    slowdown: tuple[float, ...] = ()
    bandwidth: tuple[float, ...] = ()


When = Literal["step", "pass"]


def meets(works: Iterable[ChunkWork]) -> bool:
    """Whether communication inside the passes of chunks may meet their gathers and reductions on a link."""
    inside: set[str] = set()
    attached: set[str] = set()
    for work in works:
        passes = (work.forward, work.backward, work.weight)
        inside.update(segment.load.level for segments in passes for segment in segments if segment.load.share)
        collectives = (*work.forward_gathers, *work.backward_gathers, *work.reductions)
        attached.update(each.work.load.level for each in collectives if each.work.load.share)
    return not inside.isdisjoint(attached)


@dataclass(frozen=True)
class StepProgram:
    """One training step.

    Attributes:
        work: per position of the model (chunks x stages of one direction), first layers first.
        transfer: an activation or gradient to the next rank, over the links out of one and into the other.
        blocking: sends block: the next compute waits for the send.
        gather, reduce: how often the attached collectives run: once a "step" (the first forward
            needs it, the last backward completes it) or each "pass".
        unit: micro batches whose passes through a chunk share a gather and a reduction, where those run
            each pass. Passes that share none wait at their end for what they reduce.
        prefetch: gathers that may start ahead of the one in use.
        overlap_gradients: a pass computes on beside the reductions of what it has completed; else it waits.
        finish: per rank, after its last work and reductions: optimizer, parameter gathering.
        synchronous: the finish waits for all ranks (gradient norm, overflow check).
        static: bytes that each rank holds throughout.
        ports: by level of the topology, where each rank enters its links; without, each has its own.
    """

    schedule: Schedule
    stages: int
    micro_batches: int
    chunks: int
    work: tuple[ChunkWork, ...]
    transfer: StreamWork
    transfers: Mapping[tuple[int, int], StreamWork] = field(default_factory=dict)
    """Transfers between two ranks where they differ from ``transfer``, by sender and receiver."""
    blocking: bool = False
    paces: tuple[float, ...] = ()
    """Kernel time of each micro batch over that of the mean one; without, all are equal."""
    gather: When = "step"
    reduce: When = "step"
    unit: int = 1
    prefetch: int = 1
    overlap_gradients: bool = True
    in_turn: bool = False
    """A gather that is not issued ahead follows the reduction before it, on the same communicator."""
    finish: tuple[Pass, ...] = ()
    host_updates: tuple[Pass, ...] = ()
    """Per rank, updates off the device that run beside passes."""
    updates_from: Literal["step", "backward"] = "step"
    """What they start with: the step, or a rank's last backward pass."""
    synchronous: bool = True
    static: tuple[float, ...] = ()
    ports: Mapping[str, tuple[Port, ...]] = field(default_factory=dict)
    output: OutputWork | None = None
    replicas: tuple[Replicas, ...] = (Replicas(),)
    contention: Contention | None = None
    detail: bool = False
    """Run every segment as a task of its own; otherwise passes that nothing interrupts run as one."""


def predecessors(work: Pass, index: int) -> tuple[int, ...]:
    """Which segments of a pass its segment waits for, by place."""
    after = work[index].after
    if after is not None:
        return after
    return (index - 1,) if index else ()
