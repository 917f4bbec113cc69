"""Iteration tables of a search, for runs of its deployments on the event engine."""

from __future__ import annotations

from collections.abc import Sequence

from planner.serving.request_sample import Sample
from planner.serving.shapes import ReplicaShape
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.capped import iteration_table
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.shared_tables import SharedTables
from simulator.serving.steps.table import IterationTable

FREE = {"role", "replicas", "options", "name", "weights"}
"""Fields of a pool in which replicas of one table differ; the stored format stands for the weights."""


class PricedTables(SharedTables):
    """Tables that a search has priced already, where they are as large as a run needs.

    Args:
        shapes: replicas of the run's deployment.
        sample: requests of the run.
    """

    def __init__(self, shapes: Sequence[ReplicaShape], sample: Sample) -> None:
        super().__init__()
        self._shapes = shapes
        self._longest = float((sample.prompts + sample.outputs).max())
        self._prompt = float(sample.prompts.mean())

    def table(self, price: StepPrice, budget: float, sequences: float, context: float) -> IterationTable:
        """The table of a replica: the search's, or one of the size asked for; see `SharedTables.table`."""
        for shape in self._shapes:
            if self._serves(shape, budget, sequences, context) and _same(price, shape):
                return shape.plain or shape.table
        return iteration_table(price, int(budget), int(sequences), int(context))

    def _serves(self, shape: ReplicaShape, budget: float, sequences: float, context: float) -> bool:
        """Whether hardly a step is beyond a shape's table; such steps are priced in full."""
        table, drafts = shape.plain or shape.table, shape.pool.speculation
        verified = 0 if drafts is None else drafts.queries - 1
        alone, running = budget - verified * sequences, min(sequences, shape.kv_tokens / self._prompt)
        longest = min(self._longest, context)
        return (
            max(alone, sequences) + max(verified, 1) * running <= table.max_tokens
            and sequences <= table.max_sequences
            and longest <= table.max_context
            and min(longest, alone) <= table.longest_chunk
        )


def _same(price: StepPrice, shape: ReplicaShape) -> bool:
    """Whether a shape's replicas are those that a price is of."""
    pool = price.pool
    return (
        pool.stored == shape.pool.stored
        and price.cluster.device.name == shape.offer.cluster.device.name
        and price.model == shape.table.price.model
        and _fields(pool) == _fields(shape.pool)
    )


def _fields(pool: Pool) -> dict[str, object]:
    return pool.model_dump(exclude=FREE)
