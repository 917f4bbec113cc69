"""Exact enumeration: all candidates of a space in arrays; rules reject once their fields have branched."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from core.records import record
from planner.training.space import Space
from simulator.plan import COLUMNS, Plans, concatenate
from simulator.rules import balances_predictions

CHUNK = 1 << 17
"""Plans per call of the cost model: enough to compute each distinct kernel once for many plans, few enough
for the arrays to stay in the caches."""
BLOCK = 1 << 16
"""Maximum number of candidates in memory while they branch."""


@record()
class Candidates:
    """A block of candidates: columns of the fields that have branched so far, each of shape (count,).

    A field that has not branched, or that has only one value, reads as the first of its values.
    """

    space: Space
    columns: dict[str, np.ndarray]
    count: int = 1

    def __getitem__(self, name: str) -> np.ndarray:
        if name in self.columns:
            return self.columns[name]
        return np.broadcast_to(self.space.codes(name)[0], self.count)

    def branch(self, name: str) -> Candidates:
        """Every candidate with every value of one more field."""
        codes = self.space.codes(name)
        columns = {key: np.repeat(column, len(codes)) for key, column in self.columns.items()}
        columns[name] = np.tile(codes, self.count)
        return Candidates(self.space, columns, self.count * len(codes))

    def take(self, index: np.ndarray | slice) -> Candidates:
        """The candidates that a mask, an index array or a slice selects."""
        columns = {name: column[index] for name, column in self.columns.items()}
        count = len(next(iter(columns.values()))) if columns else len(np.arange(self.count)[index])
        return Candidates(self.space, columns, count)

    @cached_property
    def data(self) -> np.ndarray:
        """Data-parallel replicas that fill the devices (rounded down where they cannot)."""
        model_ranks = self["tensor"] * self["pipeline"] * self["context"]
        return np.maximum(self.space.devices // model_ranks, 1)

    @cached_property
    def sequence_parallel(self) -> np.ndarray:
        """Whether sequence parallelism is on: with tensor parallelism, unless the constraints fix it."""
        offered = self.space.setting.framework.offers.get("sequence_parallel", [])
        only = offered[0] if len(offered) == 1 else None
        fixed = self.space.constraints.fixed.get("sequence_parallel", only)
        return self["tensor"] > 1 if fixed is None else np.full(self.count, bool(fixed))

    @cached_property
    def plans(self) -> Plans:
        """The candidates as plans."""
        branched = (*COLUMNS, "policy")
        columns: dict[str, Any] = {name: self[name] for name in branched if name in self.space.values}
        setting, degrees = self.space.setting, (self["pipeline"], self["virtual_pipeline"])
        around = balances_predictions(setting, *degrees)
        first, last = (np.where(around, 0, end) for end in end_layers(setting.model.layers, *degrees))
        return Plans(
            **columns,
            policies=self.space.policies,
            data=self.data,
            sequence_parallel=self.sequence_parallel,
            first_stage_layers=first,
            last_stage_layers=last,
            schedule_names=self.space.schedule_names,
            shared=self.space.shared,
        )


def end_layers(layers: int, pipeline: np.ndarray, chunks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Layers of the first and the last stage where the stages cannot be equal; 0 where they are.

    All chunks have one size except the first and the last of the model, which also hold embedding and loss
    and therefore fewer layers; the last holds the fewest (Llama 3: 126 layers on 16 stages of 8). The result
    is 0 too where the layers do not divide: empty end chunks would still leave a surplus.
    """
    size = -(-layers // (pipeline * chunks))
    missing = pipeline * chunks * size - layers
    first, last = chunks * size - missing // 2, chunks * size - (missing + 1) // 2
    uneven = (missing > 0) & (missing <= 2 * size) & (last > 0) & (pipeline > 1)
    return np.where(uneven, first, 0), np.where(uneven, last, 0)


@record()
class CandidateRule:
    """A reason to reject candidates.

    Attributes:
        name: label in reports; rules with the same reason share it.
        why: the condition and its reason, for reports.
        reads: the fields that it reads; it runs as soon as all of them have branched.
        keep: mask of the candidates to keep, shape (count,).
    """

    name: str
    why: str
    reads: tuple[str, ...]
    keep: Callable[[Candidates], np.ndarray]


class Enumeration:
    """Enumerates a space once.

    ``removed`` counts the candidates that each rule has removed so far; a candidate counts for the first rule
    that rejects it, with all values of the fields that had not branched by then. Once ``blocks`` is
    exhausted, removed and yielded candidates add up to ``space.candidates``.
    """

    def __init__(self, space: Space, rules: Sequence[CandidateRule]) -> None:
        self.space = space
        self.removed: Counter[str] = Counter({rule.name: 0 for rule in rules})
        self._fields = [name for name, values in space.values.items() if len(values) > 1]
        self._rules = self._place(rules)

    def _place(self, rules: Sequence[CandidateRule]) -> list[list[CandidateRule]]:
        """The rules that can decide after each number of branched fields."""
        places: list[list[CandidateRule]] = [[] for _ in range(len(self._fields) + 1)]
        for rule in rules:
            needed = [self._fields.index(name) + 1 for name in rule.reads if name in self._fields]
            places[max(needed, default=0)].append(rule)
        return places

    def blocks(self) -> Iterator[Candidates]:
        """Yield all candidates that every rule keeps, in order, never an empty block."""
        yield from self.branched(self._filter(Candidates(self.space, {}), 0), 0)

    def before(self, *names: str) -> tuple[Candidates, int]:
        """Candidates in which none of these fields has branched that do so last; how many others have."""
        depth = max((n for n, name in enumerate(self._fields, start=1) if name not in names), default=0)
        blocks = list(self.branched(self._filter(Candidates(self.space, {}), 0), 0, depth))
        listed = {name: [block.columns[name] for block in blocks] for name in self._fields[:depth] if blocks}
        columns = {name: np.concatenate(parts) for name, parts in listed.items()}
        return Candidates(self.space, columns, sum(block.count for block in blocks)), depth

    def branched(self, block: Candidates, depth: int, end: int | None = None) -> Iterator[Candidates]:
        """Yield the candidates of a block, of which ``depth`` fields have branched, after ``end`` (all)."""
        if depth == (len(self._fields) if end is None else end):
            if block.count:
                yield block
            return
        name = self._fields[depth]
        rows = max(BLOCK // len(self.space.values[name]), 1)
        for start in range(0, block.count, rows):
            part = block.take(slice(start, start + rows)) if block.count > rows else block
            yield from self.branched(self._filter(part.branch(name), depth + 1), depth + 1, end)

    def candidates_of(self, depth: int) -> int:
        """Number of candidates that one becomes, of which this many fields have branched."""
        return prod(len(self.space.values[name]) for name in self._fields[depth:]) * self.space.choices

    def _filter(self, block: Candidates, depth: int) -> Candidates:
        """Apply the rules whose fields have branched, and count the removed candidates."""
        unbranched = self.candidates_of(depth)
        for rule in self._rules[depth]:
            if not block.count:
                break
            keep = rule.keep(block)
            count = int(np.count_nonzero(keep))
            self.removed[rule.name] += (block.count - count) * unbranched
            if count < block.count:
                block = block.take(keep)
        return block


def chunks(blocks: Iterator[Candidates]) -> Iterator[Plans]:
    """Gather blocks of any size into chunks for the cost model."""
    waiting: list[Plans] = []
    for block in blocks:
        waiting.append(block.plans)
        while sum(map(len, waiting)) >= CHUNK:
            plans = concatenate(waiting)
            yield plans.take(slice(0, CHUNK))
            waiting = [plans.take(slice(CHUNK, None))]
    if sum(map(len, waiting)):
        yield concatenate(waiting)
