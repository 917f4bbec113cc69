"""Micro batches of steps whose documents are dealt to groups of context-parallel ranks of unequal degree."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType

import numpy as np

from core.records import record
from simulator.lengths import Lengths
from simulator.packing.assignment import Dealt
from simulator.packing.base import Array
from simulator.packing.bytescale import dealt_by_length
from simulator.packing.costs import DegreeCosts
from simulator.packing.flexsp import dealt_by_program
from simulator.packing.steps import MicroBatches

FILL = 0.95
"""Share of a step's room that drawn documents take: the last of a micro batch leaves room."""
SEED = 0
DRAWS = 64
DOCUMENTS = 40_000
"""Documents of all drawn steps, about."""
PROGRAMS = 16
"""Micro batches whose groups a program chooses, about; a program takes some tenths of a second."""
FEWEST_DRAWS = 2
ALIKE = 1e-9

GROUPED: Mapping[str, str] = MappingProxyType({"flexsp": "micro batch", "bytescale": "step"})
"""Packings by the word of ``workload.packing``, with what ranks wait for each other in."""


@record()
class GroupedStep:
    """The drawn steps of one plan.

    Attributes:
        tokens, squares: of a micro batch on a rank that decides, over the ranks of its group, means.
        paces: seconds of the micro batches of a usual step, in their order.
        seconds: of the mean micro batch.
        late: seconds of the 95th percentile of steps over those of the mean step.
        gap: how far the bound on all drawn steps lies below their seconds, as a share.
        shares: share of the tokens in groups of each degree, shape (degrees,).
        deciding: share of the micro batches that groups of each degree decide, shape (degrees,).
    """

    tokens: float
    squares: float
    paces: tuple[float, ...]
    seconds: float
    late: float
    gap: float
    shares: Array
    deciding: Array

    @property
    def relative_paces(self) -> list[float]:
        """Seconds of the micro batches of a usual step over those of their mean."""
        return [pace * len(self.paces) / sum(self.paces) for pace in self.paces]

    def degree(self, costs: DegreeCosts) -> tuple[int, float]:
        """The degree whose price lies next below the mean micro batch, and what is left as a factor."""
        seconds = np.diagonal(costs.seconds(self.tokens * costs.degrees, self.squares * costs.degrees))
        below = seconds <= self.seconds * (1 + ALIKE)
        nearest = seconds[below].max() if below.any() else seconds.min()
        beside = np.abs(seconds / nearest - 1) <= ALIKE
        at = int(np.where(beside, 1.0 + self.deciding, 0.0).argmax())
        factor = self.seconds / float(seconds[at])
        return int(costs.degrees[at]), factor if abs(factor - 1) > ALIKE else 1.0


class GroupedSteps:
    """Drawn steps of documents that groups of ranks share.

    Args:
        law: lengths of documents, cut to ``seq_len``.
        packing: a key of `GROUPED`.
        seq_len: tokens of the longest document.
        rows: documents of that length that a step has room for.
    """

    def __init__(self, law: Lengths, packing: str, seq_len: int, rows: int) -> None:
        self.fills = True
        self.by_micro_batch = GROUPED[packing] == "micro batch"
        random = np.random.default_rng(SEED)
        mean = float(np.minimum(law.draw(random, 4096), seq_len).mean())
        room = seq_len * rows * (FILL if law.longest() > 1 and mean < seq_len else 1.0)
        count = max(math.ceil(rows * seq_len / mean), 1)
        draws = int(np.clip(DOCUMENTS // count, FEWEST_DRAWS, DRAWS))
        drawn = np.minimum(law.draw(random, draws * count), seq_len).reshape(draws, count).astype(np.float64)
        self.steps = [step[: max(int((step.cumsum() <= room).sum()), 1)] for step in drawn]
        self._known: dict[tuple[object, ...], GroupedStep] = {}

    @cached_property
    def real(self) -> float:
        """Tokens of documents in a step, mean over the draws."""
        return float(np.mean([step.sum() for step in self.steps]))

    @cached_property
    def mean_square(self) -> float:
        """Sum of squared lengths of a step over its tokens: the length that attention feels."""
        return float(sum((step**2).sum() for step in self.steps) / sum(step.sum() for step in self.steps))

    def padding(self, micro_batch: int) -> float:
        """Share of the computed tokens that is padding: none, as documents lie in groups unpadded."""
        return 0.0

    def of(self, costs: DegreeCosts, ranks: int, micro_batches: int) -> GroupedStep:
        """The drawn steps of a plan.

        Args:
            costs: of the degrees of groups.
            ranks: context- and data-parallel ranks that form groups.
            micro_batches: of a rank in a step.

        Raises:
            InputError: PuLP or HiGHS is not installed.
        """
        arrays = costs.degrees, costs.fixed, costs.token, costs.square
        key = (*(values.tobytes() for values in arrays), costs.room, ranks, micro_batches)
        if key not in self._known:
            self._known[key] = (self._by_micro_batch if self.by_micro_batch else self._by_step)(
                costs, ranks, micro_batches
            )
        return self._known[key]

    def _by_micro_batch(self, costs: DegreeCosts, ranks: int, micro_batches: int) -> GroupedStep:
        draws = int(np.clip(PROGRAMS // micro_batches, FEWEST_DRAWS, len(self.steps)))
        dealt = [
            [dealt_by_program(part, costs, ranks) for part in _parts(step, micro_batches, costs.room * ranks)]
            for step in self.steps[:draws]
        ]
        return _summed(dealt, micro_batches, costs, sum(step.sum() for step in self.steps[:draws]))

    def _by_step(self, costs: DegreeCosts, ranks: int, micro_batches: int) -> GroupedStep:
        dealt = [dealt_by_length(step, costs, ranks) for step in self.steps]
        each, tokens = (
            np.array([step.seconds for step in dealt]),
            np.sum([step.tokens for step in dealt], axis=0),
        )
        count = len(dealt) * micro_batches
        mean = float(each.sum()) / count
        return GroupedStep(
            tokens=float(tokens.sum()) / count / ranks,
            squares=float(sum(step.squares.sum() for step in dealt)) / count / ranks,
            paces=(float(np.median(each)) / micro_batches,) * micro_batches,
            seconds=mean,
            late=_late(each),
            gap=1.0 - sum(step.bound for step in dealt) / float(each.sum()),
            shares=tokens / tokens.sum(),
            deciding=tokens / tokens.sum(),
        )


def _parts(lengths: Array, micro_batches: int, room: float) -> list[Array]:
    """Documents of each micro batch: longest first, to the first that has room; else to the emptiest."""
    parts: list[list[float]] = [[] for _ in range(micro_batches)]
    free = np.full(micro_batches, room)
    for length in np.sort(lengths)[::-1].tolist():
        able = np.flatnonzero(free >= length)
        at = int(able[0]) if len(able) else int(free.argmax())
        parts[at].append(length)
        free[at] -= length
    return [np.array(part) for part in parts if part]


def _summed(dealt: list[list[Dealt]], micro_batches: int, costs: DegreeCosts, tokens: float) -> GroupedStep:
    """Steps of micro batches that the slowest group of each decides.

    Documents that found no room are charged as the others: they wait for a step with room.
    """
    each = [micro for step in dealt for micro in step]
    waiting = sum(micro.waiting for micro in each)
    late = tokens / (tokens - waiting)
    slowest = [int(m.ends(costs).argmax()) for m in each]
    degrees = np.array([m.degree[at] for m, at in zip(each, slowest, strict=True)], np.int64)
    ranks = costs.degrees[degrees]
    of_slowest, squares = (
        np.array([values[at] for values, at in zip(listed, slowest, strict=True)])
        for listed in ([m.tokens for m in each], [m.squares for m in each])
    )
    seconds = np.array([sum(m.seconds for m in step) for step in dealt])
    count, kinds = len(dealt) * micro_batches, len(costs.degrees)
    usual = dealt[int(np.argsort(seconds, kind="stable")[(len(seconds) - 1) // 2])]
    paces = [m.seconds * late for m in usual] + [0.0] * (micro_batches - len(usual))
    carried = sum(np.bincount(m.degree, m.tokens, minlength=kinds) for m in each)
    return GroupedStep(
        tokens=float((of_slowest / ranks).sum()) / count * late,
        squares=float((squares / ranks).sum()) / count * late,
        paces=tuple(paces),
        seconds=float(seconds.sum()) / count * late,
        late=_late(seconds),
        gap=max(1.0 - sum(m.bound for m in each) / float(seconds.sum()), 0.0),
        shares=carried / np.sum(carried),
        deciding=np.bincount(degrees, minlength=kinds) / len(each),
    )


def _late(seconds: Array) -> float:
    return max(float(np.quantile(seconds, 0.95) / seconds.mean()), 1.0)


def equal_micro_batches(steps: Iterable[tuple[DegreeCosts, GroupedStep]]) -> MicroBatches:
    """Micro batches of several plans as equal sequences of the same cost; cases are plans."""
    rows = []
    for costs, step in steps:
        degree, stretch = step.degree(costs)
        length = step.squares / step.tokens
        rows.append((step.tokens * degree / length, length, step.late, degree, stretch))
    return MicroBatches(*np.array(rows, dtype=np.float64).reshape(len(rows), 5).T)
