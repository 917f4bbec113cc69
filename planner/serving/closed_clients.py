"""Replicas under a constant number of requests in flight: figures of every count of replicas of a shape.

The clients are dealt evenly to the replicas, and each sends its next request when the last one has ended.
Replicas prefill and decode: pools of their own are not searched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from core.arrays import distinct
from planner.serving.question import ServingQuestion
from planner.serving.replica_cases import CLOSE, MIXED, ROLES, ReplicaCases, ttft_quantile
from planner.serving.roles import Phase
from planner.serving.shapes import ReplicaShape

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class ClosedFigures:
    """Figures of replicas under their clients, arrays of shape (cases,).

    Args:
        cases: replicas with their limits.
        counts: replicas that share the clients of the question.
    """

    def __init__(self, cases: ReplicaCases, counts: Array | Ints) -> None:
        question = cases.question
        slo = question.workload.slo
        state = cases.closed_state((question.concurrency or 0) / counts)
        self.ttft, self.tpot, self.decode = ttft_quantile(question, state), state.tpot_s, state.decode_s
        self.watts, self.batch = state.watts, state.batch
        self.miss = np.zeros(len(cases))
        """Largest ratio of a latency to its target."""
        latencies = ((self.ttft, slo.ttft), (self.tpot, slo.tpot), (self.ttft + self.decode, slo.e2e))
        for figure, limit in latencies:
            if limit is not None:
                self.miss = np.maximum(self.miss, figure / limit)
        self.rate = np.where(self.miss <= 1.0, state.requests_s, 0.0)
        """Requests a second of a replica; 0 where it misses a target."""


def closed_phases(
    question: ServingQuestion,
    kept_shapes: Sequence[ReplicaShape],
    roles: Sequence[int],
    progress: Callable[[float], None] | None = None,
) -> list[Phase]:
    """Figures of every shape as one pool; the arguments are those of `scores.phases`, roles unused."""
    phases = []
    for number, shape in enumerate(kept_shapes):
        counts = np.arange(1, max(min(shape.most_replicas, question.concurrency or 1), 1) + 1)
        best_limits, tried = _best_limits(question, shape, counts)
        replicas = best_limits[np.zeros(len(counts), np.int64)]
        figures = ClosedFigures(replicas, counts)
        phases.append(
            Phase(
                shape=shape,
                role=ROLES[MIXED],
                budget=int(best_limits.budget[0]),
                sequences=int(best_limits.sequences[0]),
                rate=figures.rate,
                ttft=figures.ttft,
                tpot=figures.tpot,
                decode=figures.decode,
                watts=figures.watts * counts,
                tried=tried,
                batch=float(np.max(np.where(figures.rate > 0.0, figures.batch, 0.0))),
                bandwidth=float(best_limits.bandwidth[0]),
                sending_s=float(best_limits.sending_s[0]),
                cases=replicas,
                place=0,
            )
        )
        if progress:
            progress(0.5 + 0.5 * (number + 1) / len(kept_shapes))
    return phases


def _best_limits(question: ServingQuestion, shape: ReplicaShape, counts: Ints) -> tuple[ReplicaCases, int]:
    """The limits of a step that carry most within the targets at some count, and the pairs compared.

    Of equal ones the engine's own, which are the largest; where all miss, those that miss least.
    """
    limits = ReplicaCases.of(question, [shape])
    series = distinct(np.geomspace(1, len(counts), len(counts).bit_length() + 1).round())
    figures = ClosedFigures(
        limits[np.tile(np.arange(len(limits)), len(series))], np.repeat(series, len(limits))
    )
    rate = figures.rate.reshape(len(series), -1).max(axis=0)
    value = rate if rate.max() > 0.0 else 1.0 / figures.miss.reshape(len(series), -1).min(axis=0)
    close = np.flatnonzero(value >= value.max() * (1.0 - 2.0 * CLOSE))
    best = close[np.lexsort((limits.sequences[close], limits.budget[close]))[-1]]
    return limits[np.array([best])], len(limits)
