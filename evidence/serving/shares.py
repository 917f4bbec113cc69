"""Constants of engines that take a large part of predicted decode steps, so that none does so unnoticed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidence.serving.case import ServingCase, Setup
from simulator.serving.steady.kinds import price_of, table_of

LARGE = 0.5
"""Share of a step from which a constant is named."""
BUDGET, LEAST_CONTEXT = 2048.0, 64.0


@dataclass(frozen=True)
class ConstantShare:
    """Share of a decode step that one constant takes on rows of one engine, GPU and model."""

    engine: str
    gpu: str
    model: str
    constant: str
    share: float
    """Median over the rows."""
    rows: int


def constant_shares(cases: Iterable[ServingCase], least: float = LARGE) -> list[ConstantShare]:
    """Constants that take at least a share of the decode steps of rows with a known batch, largest first.

    Args:
        cases: rows; those that state neither a batch nor a number of clients are passed over.
        least: share of a step.
    """
    shares: dict[tuple[str, str, str, str], list[float]] = defaultdict(list)
    for case in cases:
        question = case.question
        batch = _batch(question)
        if not batch or case.flagged:
            continue
        serving: Setup = question.serving
        for constant, share in _shares(serving, batch, question.prompt + 0.5 * question.output).items():
            shares[case.engine, case.gpu, serving.model.name, constant].append(share)
    medians = [ConstantShare(*key, float(np.median(values)), len(values)) for key, values in shares.items()]
    return sorted((median for median in medians if median.share >= least), key=lambda median: -median.share)


def _batch(question: Any) -> float:
    """Sequences of a step on one rank; 0 where the row does not tell."""
    if not hasattr(question, "prompt") or not hasattr(question, "output"):
        return 0.0
    clients = getattr(question, "concurrency", 0.0) / getattr(question, "replicas", 1.0)
    return float(clients or getattr(question, "batch", 0.0)) / question.serving.pool.data


def _shares(serving: Setup, batch: float, context: float) -> dict[str, float]:
    """Shares of a decode step by constant."""
    price = price_of(serving)
    times, sequences = price.times, max(batch, 1.0)
    table = table_of(serving, BUDGET, max(sequences, 16.0), max(context, LEAST_CONTEXT))
    step = float(table.cases.decode_seconds(sequences, context))
    waits = price.model.layers * price.reduces_a_layer * times.all_reduce_s
    parts = {
        "layer_s": price.gaps - waits,
        "all_reduce_s": waits,
        "sequence_s": times.sequence_s * sequences,
        "step_s": price.engine.step_s.value,
    }
    if not price.engine.graph_sizes.value:
        parts["eager_layer_s"] = price.eager
    return {name: seconds / step for name, seconds in parts.items()}
