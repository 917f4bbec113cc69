"""A pipeline schedule: the order of tasks on each rank, the route of each micro batch, and the makespan.

A *rank* is one position of the pipeline group. A *chunk* is one of the consecutive runs of layers
that a rank holds (Megatron's virtual pipeline stages). A *position* is a chunk's place along the
model, 0 for the one with the embedding. A *route* lists the (rank, chunk) of every position, so
placement (looped, V-shaped, bidirectional) belongs to the schedule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.errors import InputError
from core.records import record

FORWARD, BACKWARD, WEIGHT = "F", "B", "W"
OFFLOAD, RELOAD = "O", "R"
OUTPUT_FORWARD, OUTPUT_WEIGHT = "S", "T"

Array = NDArray[Any]
"""Integers or floats that broadcast over plans."""

Route = tuple[tuple[int, int], ...]


class Task(NamedTuple):
    """One piece of work of a rank.

    ``kind`` is "F" (forward), "B" (backward; the input gradient alone where the schedule splits the backward)
    or "W" (weight gradient). Where a schedule says so, also "O" and "R" (copy a chunk's activations to the
    host and back; the copies overlap the tasks after them), and "S" and "T" (this rank's share of the output
    layer: logits and softmax, then its weight gradient).
    """

    kind: str
    micro_batch: int
    chunk: int


@record()
class PipelineTimes:
    """Durations of a pipeline's work; every field broadcasts over plans.

    The stage axis is one of *runs*: ``lengths`` consecutive ranks that take the same time, in the order of
    the pipeline. The first run is the first rank, the last run the last one; a run that a plan lacks has
    length 0, as has the last run of a single stage. Times are seconds per micro batch for all the layers of
    one rank together, whatever the number of chunks.
    """

    stages: float | Array
    micro_batches: float | Array
    chunks: float | Array
    lengths: Array
    """Ranks of each run, shape (runs, ...)."""
    forward: Array
    """Seconds of a rank of each run, the model's ends included, shape (runs, ...)."""
    backward: Array
    forward_ends: Array
    """Seconds of the model's first and last position minus those of another chunk of the same rank (may
    be negative), shape (2, ...); unused with one chunk per rank."""
    backward_ends: Array
    transfer: float | Array
    """Seconds to send one activation (or gradient) across one stage boundary."""
    overlap_transfer: float | Array
    """Whether sends overlap computation; if not, the next task of the rank waits for the send."""

    @classmethod
    def of_equal(
        cls,
        stages: ArrayLike,
        micro_batches: ArrayLike,
        chunks: ArrayLike,
        forward: tuple[ArrayLike, ArrayLike, ArrayLike],
        backward: tuple[ArrayLike, ArrayLike, ArrayLike],
        transfer: ArrayLike,
        overlap_transfer: ArrayLike,
    ) -> PipelineTimes:
        """A pipeline of equal stages, plus the ends of the model on its outermost positions.

        Args:
            stages, micro_batches, chunks: as in ``Schedule.requires``.
            forward: seconds of the first rank, of one between and of the last. With one stage the rank takes
                first + last - middle; with two, the middle is that of a rank without either end.
            backward: the same backward.
            transfer, overlap_transfer: as the fields.
        """
        columns = stages, micro_batches, chunks, *forward, *backward, transfer, overlap_transfer
        p, m, v, *times, sent, overlaps = np.broadcast_arrays(*columns)

        def runs(first: Array, middle: Array, last: Array) -> tuple[Array, Array]:
            single = np.where(p == 1, first + last - middle, first)
            return np.stack([single, middle, last]), np.stack([first - middle, last - middle])

        forwards, forward_ends = runs(*times[:3])
        backwards, backward_ends = runs(*times[3:])
        lengths = np.stack([np.ones_like(p), np.maximum(p - 2, 0), np.where(p > 1, 1, 0)])
        return cls(p, m, v, lengths, forwards, backwards, forward_ends, backward_ends, sent, overlaps)


class Chain(NamedTuple):
    """Per-chunk times of a pipeline in the form that the recurrences use (arrays).

    Runs as in ``PipelineTimes``; those that a plan lacks take no time.
    """

    stages: Array
    micro_batches: Array
    chunks: Array
    lengths: Array
    starts: Array
    """The first rank of each run."""
    forward: Array
    """One chunk's forward on a rank of each run, with its send where that blocks."""
    forward_first: Array
    """Seconds of position 0 minus those of another chunk of its rank (may be negative)."""
    forward_last: Array
    backward: Array
    backward_first: Array
    backward_last: Array
    hop: Array
    """Seconds between an end on one rank and the earliest start on the next (0 where sends block)."""

    def reversed(self) -> Chain:
        """The same pipeline with time running backwards: forward and backward change places."""
        return self._replace(
            forward=self.backward,
            forward_first=self.backward_first,
            forward_last=self.backward_last,
            backward=self.forward,
            backward_first=self.forward_first,
            backward_last=self.forward_last,
        )

    def rank_times(self) -> tuple[Array, Array]:
        """Forward and backward of all chunks of a rank where each has one, shape (runs, ...)."""
        forward, backward = self.forward.copy(), self.backward.copy()
        forward[0] += self.forward_first
        forward[-1] += self.forward_last
        backward[0] += self.backward_first
        backward[-1] += self.backward_last
        return forward, backward

    def ranks(self) -> Iterator[tuple[int, Array]]:
        """The first and the last rank of each run, as (run, ranks of the run before it)."""
        for run, length in enumerate(self.lengths):
            yield run, np.zeros(())
            if np.max(length) > 1:
                yield run, np.maximum(length - 1, 0)

    def before(self, values: Array) -> list[Array]:
        """Sum of the ranks' values before each run, and of all; ``values`` of each run, shape (runs, ...)."""
        sums = [np.zeros(())]
        for length, value in zip(self.lengths, values, strict=True):
            sums.append(sums[-1] + length * value)
        return sums

    def before_rank(self, rank: Array, values: Array) -> Array:
        """Sum of the ranks' values before any rank; ``values`` of each run, shape (runs, ...)."""
        total = values[0] * np.minimum(rank, 1)
        for run in range(1, len(values)):
            inside = np.minimum(np.maximum(rank - self.starts[run], 0), self.lengths[run])
            total = total + values[run] * inside
        return total


def chain(times: PipelineTimes) -> Chain:
    """Per-chunk times, with a blocking send counted into the work that produces the data.

    A blocking send delays its rank exactly as longer work would, and the receiver gets the
    data when it ends; position 0 sends nothing backward, the last position nothing forward.
    """

    def array(value: ArrayLike) -> Array:
        return np.asarray(value, dtype=np.float64)

    stages, chunks, lengths = array(times.stages), array(times.chunks), array(times.lengths)
    transfer = np.where(stages > 1, array(times.transfer), 0.0)
    blocking = np.where(np.asarray(times.overlap_transfer, dtype=bool), 0.0, transfer)
    present, several = lengths > 0, chunks > 1

    def spread(times: Array, ends: Array) -> tuple[Array, Array, Array]:
        ranks, first, last = array(times), np.zeros(()), np.zeros(())
        if several.any():
            first, last = (np.where(several, end, 0.0) for end in array(ends))
            ranks = np.stack(np.broadcast_arrays(ranks[0] - first, *ranks[1:-1], ranks[-1] - last)) / chunks
        ranks = ranks + blocking
        return ranks if present.all() else np.where(present, ranks, 0.0), first, last

    starts = np.zeros(lengths.shape)
    for run in range(1, len(lengths)):
        starts[run] = starts[run - 1] + lengths[run - 1]
    forward, forward_first, forward_last = spread(times.forward, times.forward_ends)
    backward, backward_first, backward_last = spread(times.backward, times.backward_ends)
    return Chain(
        stages=stages,
        micro_batches=array(times.micro_batches),
        chunks=chunks,
        lengths=lengths,
        starts=starts,
        forward=forward,
        forward_first=forward_first,
        forward_last=forward_last - blocking,
        backward=backward,
        backward_first=backward_first - blocking,
        backward_last=backward_last,
        hop=transfer - blocking,
    )


def position_times(times: PipelineTimes, route: Route) -> tuple[list[float], list[float]]:
    """Forward and backward seconds of each position of one plan, as ``chain`` spreads them."""
    positions, stages = len(route), int(times.stages)
    c = chain(replace(times, transfer=0.0, chunks=positions / stages))
    run_of = np.repeat(np.arange(len(c.lengths)), c.lengths.astype(int))
    passes = []
    for ranks, first, last in (
        (c.forward, c.forward_first, c.forward_last),
        (c.backward, c.backward_first, c.backward_last),
    ):
        seconds = np.array([ranks[run_of[rank]] for rank, _ in route], dtype=float)
        seconds[0] += float(first)
        seconds[-1] += float(last)
        passes.append(np.maximum(seconds, 0.0).tolist())
    return passes[0], passes[1]


@record()
class WorkTimes:
    """Seconds of each position's passes, for schedules whose order depends on them.

    The defaults are those that the schedules' papers draw: forward, input gradient and weight gradient
    take one unit each.
    """

    forward: Sequence[float]
    backward: Sequence[float]
    weight: Sequence[float]
    hop: float = 0.0
    """A transfer between ranks."""
    output: float = 0.0
    """One of the two passes of a rank's share of a vocabulary-parallel output layer."""
    paces: Sequence[float] = ()
    """Time of each micro batch over that of the mean one; without, all are equal."""

    @classmethod
    def equal(cls, positions: int, split: bool) -> WorkTimes:
        """One unit for each pass; two for a backward that is not split."""
        return cls([1.0] * positions, [1.0 if split else 2.0] * positions, [1.0] * positions)


def looped_route(stages: int, chunks: int) -> Route:
    """Positions go round the ranks, one round per chunk (Narayanan et al., SC21)."""
    return tuple((position % stages, position // stages) for position in range(stages * chunks))


def vee_route(stages: int, chunks: int) -> Route:
    """Positions down the ranks, up again, and so on: neighbours in the model share a rank at each turn."""
    route: list[tuple[int, int]] = []
    for chunk in range(chunks):
        ranks = range(stages) if chunk % 2 == 0 else reversed(range(stages))
        route += [(rank, chunk) for rank in ranks]
    return tuple(route)


class Schedule(ABC):
    """One pipeline schedule.

    Attributes:
        name: the name in plans.
        rule: which stages, micro batches and chunks it accepts, for people.
        source: where it was published.
        splits_backward: "B" is the input gradient alone and "W" tasks exist.
        copies: model replicas that the ranks of one pipeline hold (2 for bidirectional pipelines).
        returns: a route ends on the rank where it began, so that rank holds both ends of the model.
        overlaps_passes: a forward runs at once with the backward of another chunk that follows it in the
            order, so that the communication of each hides behind the computation of the other.
        has_closed_form: ``makespan`` exists; without one a search has a bound (`bound`), and a plan
            needs the event engine.
        output_barriers: where the output layer is split over all ranks, how many times they
            synchronise for it; 0 where it is not.
        waits_for_output: ranks stop for the reductions of a split output layer, so that its softmax is
            exact at once; else each rank scales its share by its own maximum and sum, and corrects it later.
        post_validation: ranks update their parameters without waiting for the gradient norm of all, and
            check it afterwards (Qi et al., Zero Bubble Pipeline Parallelism, section 4).
    """

    name: str
    rule: str = "one chunk per rank"
    source: str
    splits_backward = False
    copies = 1
    returns = False
    overlaps_passes = False
    has_closed_form = False
    output_barriers = 0
    waits_for_output = False
    post_validation = False

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """Whether the schedule can run ``m`` micro batches on ``p`` stages with ``v`` chunks per rank."""
        return (p >= 1) & (m >= 1) & (v == 1)

    @abstractmethod
    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """Maximum number of micro batches whose activations a rank holds, as ``in_flight``."""

    def requires(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """Whether the schedule can run with these numbers (broadcast)."""
        return self.accepts(*integers(stages, micro_batches, chunks))

    def in_flight(
        self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike, stage_index: ArrayLike
    ) -> Array:
        """Maximum number of micro batches whose activations a rank holds (broadcast).

        The unit is the activations of one micro batch for all the layers of one rank, so it is
        fractional where chunks are held apart.
        """
        numbers = integers(stages, micro_batches, chunks, stage_index)
        resident = np.asarray(self.resident(*numbers), dtype=np.float64)
        return np.broadcast_to(resident, np.broadcast_shapes(*(number.shape for number in numbers)))

    @abstractmethod
    def orders(
        self, stages: int, micro_batches: int, chunks: int, times: WorkTimes | None = None
    ) -> list[list[Task]]:
        """The tasks of every rank, in order of execution.

        Args:
            stages, micro_batches, chunks: as in ``requires``.
            times: for schedules that adapt their order to them; None: equal times.

        Raises:
            InputError: the schedule cannot run with these numbers.
        """

    def makespan(self, times: PipelineTimes) -> Array:
        """Seconds from the first forward to the last backward (broadcast over plans).

        Raises:
            InputError: the schedule has no closed form.
        """
        raise InputError(f"the schedule {self.name!r} has no closed form; simulate it with the event engine")

    def window(self, stages: ArrayLike, micro_batches: ArrayLike, chunks: ArrayLike) -> Array:
        """Backward passes of a rank, in micro batches, that gradient reduction can overlap.

        They start with the last backward of the first finished chunk. By symmetry, the same number of
        forwards can overlap parameter gathers.
        """
        p, m, v = integers(stages, micro_batches, chunks)
        return np.ones(np.broadcast_shapes(p.shape, m.shape, v.shape))

    def gathered_together(self, stages: ArrayLike, micro_batches: ArrayLike) -> Array:
        """Micro batches that share one gather of a chunk's sharded parameters (broadcast).

        They share the reduction of its gradients too. One for most schedules, which gather for every pass.
        """
        return np.ones(np.broadcast_shapes(np.shape(stages), np.shape(micro_batches)), dtype=np.int64)

    def routes(self, stages: int, chunks: int) -> tuple[Route, ...]:
        """Routes of micro batches through the ranks: one, or one per direction."""
        return ((vee_route if self.returns else looped_route)(stages, chunks),)

    def route_index(self, micro_batch: int, micro_batches: int) -> int:
        """Which of ``routes`` a micro batch takes."""
        return 0

    def check(self, stages: int, micro_batches: int, chunks: int) -> None:
        """Check that the schedule can run with these numbers.

        Raises:
            InputError: with the rule and what was found.
        """
        if not bool(self.requires(stages, micro_batches, chunks)):
            raise InputError(
                f"the schedule {self.name!r} needs {self.rule}; found {stages} stages, "
                f"{micro_batches} micro batches, {chunks} chunks per rank"
            )


def integers(*values: ArrayLike) -> tuple[Array, ...]:
    """The values as integer arrays."""
    return tuple(np.asarray(value, dtype=np.int64) for value in values)
