"""Iteration tables shared by many questions about few kinds of replicas."""

from __future__ import annotations

from collections import OrderedDict

from core.errors import InputError
from simulator.serving.steps.capped import iteration_table
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.table import IterationTable

MOST_TOKENS, MOST_SEQUENCES, LONGEST_CONTEXT = 2**20, 2**16, 2**21
"""Of a step and of a request, up to which steps are tabulated."""
BATCHES = 64, 256, 1024
"""Sequences of a step to which smaller numbers are rounded up, so that rows of one server share a table."""
LARGEST_KEPT = 2**17
"""Tokens of a step up to which a table is kept for further questions; larger ones take 100 MB each."""


class SharedTables:
    """Tables by kind of replica; sizes are rounded up to powers of 2, so that questions share them.

    Models and clusters are told apart by name: they must come from the catalogues.

    Args:
        most: tables kept; the least recently used is dropped.
    """

    def __init__(self, tables: int = 256) -> None:
        self._most = tables
        self._tables: OrderedDict[tuple[object, ...], IterationTable] = OrderedDict()

    def table(self, price: StepPrice, budget: float, sequences: float, context: float) -> IterationTable:
        """The table of a replica.

        Args:
            price: prices its steps.
            budget, sequences, context: largest tokens of a step, sequences of a rank, tokens of a request.

        Raises:
            InputError: a size beyond those of any server.
        """
        limits = (
            ("tokens of a step", budget, MOST_TOKENS),
            ("sequences of a step", sequences, MOST_SEQUENCES),
            ("tokens of a request", context, LONGEST_CONTEXT),
        )
        for name, size, limit in limits:
            if size > limit:
                raise InputError(f"{size:,.0f} {name}; at most {limit:,} are priced")
        tokens, batch, length = (1 << (max(int(size), 16) - 1).bit_length() for _, size, _ in limits)
        batch = next((size for size in BATCHES if size >= batch), batch)
        pool = price.pool.model_dump_json(exclude={"options", "speculation", "replicas"})
        cluster = price.cluster
        where = cluster.name, cluster.device.name, cluster.devices
        key = (
            price.model.name,
            price.model.causal,
            *where,
            pool,
            price.verified,
            price.engine.name,
            tokens,
            batch,
            length,
        )
        table = self._tables.pop(key, None) or iteration_table(price, tokens, batch, length)
        if tokens <= LARGEST_KEPT:
            self._tables[key] = table
            if len(self._tables) > self._most:
                self._tables.popitem(last=False)
        return table
