"""Largest rates of two pools together: a request's latencies are those of both and of the move between them.

Each pool alone is scored by what it takes of the targets, which no pair exceeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import HALVES, LEAST_RATE, ReplicaCases, on_ladder
from planner.serving.roles import Phase, figures_of, phases
from planner.serving.scored_deployments import Scores, scores, targeted
from planner.serving.shapes import ReplicaShape

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

MOST_PAIRS = 20_000
"""Pairs whose rate is looked for, those that promise most; others of too long latencies carry nothing."""
FIGURES = ("ttft", "tpot", "decode_s", "watts")
"""Columns that a pair's rate decides."""


def score_deployments(
    question: ServingQuestion,
    kept_shapes: Sequence[ReplicaShape],
    progress: Callable[[float], None] | None = None,
    phased: Callable[..., list[Phase]] = phases,
) -> Scores:
    """`scores`, of which pairs meet the targets together, within the watts of the question."""
    table = within_targets(scores(question, kept_shapes, progress, phased))
    if question.watts is None:
        return table
    rows = table.watts <= question.watts
    arrays = {each.name: getattr(table, each.name) for each in fields(table)}
    return replace(table, **{n: a[..., rows] for n, a in arrays.items() if isinstance(a, np.ndarray)})


def within_targets(table: Scores) -> Scores:
    """The table with the largest rates at which pairs meet the targets together, and the figures there."""
    question, slo = table.question, table.question.workload.slo
    two = table.second >= 0
    if question.objective != "goodput" or (slo.tpot is None and slo.e2e is None) or not two.any():
        return table
    # Figures of the table are those at its rates, unless fewer requests a second are asked for.
    late = two & (table.goodput > 0.0)
    if question.rate is None:
        late &= ~_meet(question, table.ttft, table.tpot, table.decode_s)
    rows = np.flatnonzero(late)
    rows = rows[np.argsort(-table.goodput[rows], kind="stable")]
    goodput, columns = table.goodput.copy(), {name: getattr(table, name).copy() for name in FIGURES}
    goodput[rows[MOST_PAIRS:]] = 0.0
    for part in _of_the_same_cases(table, rows[:MOST_PAIRS]):
        pairs = _Pairs(table, part)
        goodput[part] = pairs.largest(table.goodput[part])
        load = goodput[part] if question.rate is None else np.minimum(goodput[part], question.rate)
        for name, figure in zip(FIGURES, pairs.at(load), strict=True):
            columns[name][part] = figure
    return replace(table, goodput=goodput, **columns)


def _meet(question: ServingQuestion, ttft: Array, tpot: Array, decode_s: Array) -> NDArray[np.bool_]:
    return np.logical_and.reduce(
        [figure <= limit for figure, limit in targeted(question, ttft, tpot, decode_s)]
    )


def _of_the_same_cases(table: Scores, rows: Ints) -> list[Ints]:
    """Rows by the arrays that their pools' cases stand in."""
    groups: dict[tuple[int, int], list[int]] = {}
    for row in rows.tolist():
        first, second = int(table.first[row]), int(table.second[row])
        prefill, decode = table.prefill[first], table.decode[second]
        groups.setdefault((id(prefill.cases), id(decode.cases)), []).append(row)
    return [np.array(part) for part in groups.values()]


class _Pairs:
    """Two pools of each row: one replica of either, and how many share the load."""

    def __init__(self, table: Scores, rows: Ints) -> None:
        self.question = table.question
        before, after = table.replicas[:, rows].astype(np.int64)
        self.prefill = _cases(table.prefill, table.first[rows].astype(np.int64), before)
        self.decode = _cases(table.decode, table.second[rows].astype(np.int64), after)

    def at(self, rate: Array) -> tuple[Array, Array, Array, Array]:
        """TTFT, TPOT, time from the first to the last token, watts, at requests a second of all replicas."""
        parts = []
        for cases in (self.prefill, self.decode):
            load = rate / cases.replicas
            parts.append(figures_of(cases, load, cases.state(np.maximum(load, LEAST_RATE))))
        (ttft, _, sent, watts), (_, tpot, decode_s, other_watts) = parts
        tokens = max(self.question.output - 1.0, 1.0)
        return ttft, tpot + sent / tokens, decode_s + sent, watts + other_watts

    def largest(self, bound: Array) -> Array:
        """Largest rates that meet the targets, at most ``bound``; 0 where even few requests miss."""

        def meets(rate: Array) -> NDArray[np.bool_]:
            return _meet(self.question, *self.at(rate)[:3])

        low, high = np.where(meets(bound), bound, 0.0), bound
        for _ in range(HALVES):
            middle = 0.5 * (low + high)
            holds = meets(middle)
            low, high = np.where(holds, middle, low), np.where(holds, high, middle)
        return np.where(low < bound, on_ladder(low), bound)


def _cases(phases: Sequence[Phase], numbers: Ints, replicas: Ints) -> ReplicaCases:
    places = np.array([phase.place for phase in phases])
    return phases[int(numbers[0])].cases[places[numbers] + replicas - 1]
