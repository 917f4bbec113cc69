"""Step times of a replica that overlaps kernels inside a step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np

from simulator.serving.overlaps.base import Overlap
from simulator.serving.overlaps.pieces import Halves, NanoBatches, TwoBatches
from simulator.serving.overlaps.residual import CoherentExperts, Kraken, Ladder, SwiftKv
from simulator.serving.overlaps.saved import PieceTimes, figures_of, saved_seconds
from simulator.serving.question.overlap import StepOverlap
from simulator.serving.question.policies import make_policy
from simulator.serving.steps.all_reduce import all_reduce_seconds
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, Stretch
from simulator.serving.steps.table import IterationTable

overlaps: Mapping[str, type[Overlap]] = {
    kind.name: kind for kind in (NanoBatches, Halves, Ladder, Kraken, TwoBatches, CoherentExperts, SwiftKv)
}


def make_overlap(overlap: StepOverlap, where: str) -> Overlap:
    """The overlap that a pool names, with its parameters; raises as `make_policy`."""
    return make_policy(
        "overlap", overlaps, overlap.kind, overlap.options, f"{where}.kind", f"{where}.options"
    )


class OverlapSteps:
    """`StepTimes` of steps whose kernels overlap.

    Args:
        table: step times without overlap.
        overlap: what runs beside what.
    """

    def __init__(self, table: IterationTable, overlap: Overlap) -> None:
        self.table, self.overlap, self.stages = table, overlap, table.stages
        price = table.price
        tokens = np.arange(len(table.tokens_s), dtype=np.float64)
        size = tokens * price.model.hidden * 2.0
        star = price.pool.all_reduce == "star"
        reduce_s = all_reduce_seconds(price.cluster, price.pool.tensor, size, price.engine, star)
        count = price.model.layers * price.reduces_a_layer
        self._network = (count * (reduce_s + price.times.all_reduce_s) * (tokens > 0)).tolist()
        self._exchange = price.exchange(tokens * price.pool.data).tolist()
        self._tokens = table.tokens_s.tolist()
        self.figures = figures_of(overlap, len(self._tokens), price.gaps)

    def by_tokens(self) -> dict[str, Array]:
        """Seconds of steps of 0, 1, ... tokens: whole, in pieces, and of the pieces' communication."""
        pieces = self.overlap.pieces
        piece = -(-np.arange(len(self._tokens)) // pieces)
        uncut, network, exchange = (
            np.array(seconds) for seconds in (self._tokens, self._network, self._exchange)
        )
        return {
            "whole": uncut,
            "cut": pieces * uncut[piece],
            "network": pieces * network[piece],
            "exchange": pieces * exchange[piece],
        }

    def _saved(
        self,
        seconds: float,
        prompt: int,
        decodes: int,
        kv_tokens: int,
        queries: int,
        chunks: float = 0.0,
        exchanged: float | None = None,
    ) -> float:
        """Seconds that a step is shorter; negative where its pieces cost more than they hide.

        Args:
            seconds: of the step without overlap.
            prompt, decodes, kv_tokens, queries: of the rank with most tokens.
            chunks: attention of its prompts, s.
            exchanged: mean tokens of the ranks, whose exchange is charged; by default those of this one.
        """
        overlap, pieces = self.overlap, self.overlap.pieces
        tokens = prompt + decodes * queries
        if tokens < pieces or (overlap.prompts_only and not prompt) or tokens >= len(self._tokens):
            return 0.0
        piece = -(-tokens // pieces)
        uncut, cut = self._tokens[tokens], self._tokens[piece] * pieces
        network, every = pieces * self._network[piece], pieces * self._exchange[piece]
        exchange = every if exchanged is None else pieces * self._exchange[ceil(exchanged / pieces)]
        memory = self.table.decode_attention_s(decodes, kv_tokens) if decodes else 0.0
        times = PieceTimes(uncut, cut, network, every, exchange, memory, chunks)
        return saved_seconds(self.figures, seconds, prompt, tokens, times)

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """See `StepTimes.step`."""
        seconds = self.table.step(prefills, decodes, kv_tokens, queries)
        prompt = sum(chunk[0] for chunk in prefills)
        chunks = sum(self.table.chunk_attention_s(*chunk) for chunk in prefills)
        return seconds - self._saved(seconds, prompt, decodes, kv_tokens, queries, chunks)

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """See `StepTimes.stretch`; where the shorter of two kernels changes on the way, one step."""
        first_s, growth_s, steps = self.table.stretch(decodes, kv_tokens, queries)
        saved = self._saved(first_s, 0, decodes, kv_tokens, queries)
        if steps < 2:
            return first_s - saved, growth_s, steps
        steps = min(steps, 1 << 20)
        added = decodes * queries
        after = self._saved(first_s + growth_s, 0, decodes, kv_tokens + added, queries)
        last_s, last_kv = first_s + (steps - 1) * growth_s, kv_tokens + (steps - 1) * added
        next_, last = after - saved, self._saved(last_s, 0, decodes, last_kv, queries) - saved
        straight = abs(last - next_ * (steps - 1)) <= 1e-9 * first_s
        return first_s - saved, growth_s - next_, steps if straight else 1

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """See `StepTimes.lockstep`: pieces of the rank with most tokens."""
        seconds = self.table.lockstep(ranks, queries)
        tokens = [rank.decodes * queries + sum(chunk[0] for chunk in rank.prefills) for rank in ranks]
        fullest = ranks[tokens.index(max(tokens))]
        prompt = sum(chunk[0] for chunk in fullest.prefills)
        mean = sum(tokens) / self.table.price.pool.data
        return seconds - self._saved(
            seconds, prompt, fullest.decodes, fullest.kv_tokens, queries, 0.0, min(mean, max(tokens))
        )

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the same work in the step's own time."""
        return self.table.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The parts without overlap, and what it saves (negative)."""
        parts = self.table.parts(prefills, decodes, kv_tokens)
        return {**parts, "overlap": self.step(prefills, decodes, kv_tokens) - sum(parts.values())}
