"""Array lookups of step times in the iteration tables of one or several kinds of replicas.

The tables of all kinds are joined; a case (an element of an array) names its table. So one call prices steps
of every kind of replica that a search compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from functools import cached_property, partial
from typing import Any, Protocol, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.steps.batch_spread import SHARED, averaged
from simulator.serving.steps.case_mechanism import ArrayMechanism, CaseBatch
from simulator.serving.steps.joined import Grid, JoinedGrids, JoinedVectors
from simulator.serving.steps.power import PowerModel
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_times import SlidingKv

Array = NDArray[np.float64]
Ints = NDArray[np.int64]


class PricedTable(Protocol):
    """Contents of an iteration table that array lookups read; see `IterationTable`."""

    price: StepPrice
    power: PowerModel
    stages: int
    padded_s: Array
    mixed_s: Array
    head_s: Array
    rank_s: Array
    experts_s: Array
    decodes: Grid
    mixed: Grid
    chunks: Grid
    around_s: float
    sequence_s: float
    least_mixed_s: float
    prefill_factor: float
    overlap_exponent: float
    graphs_mixed: bool
    largest_graph: int
    eager_above: int
    window: SlidingKv


LINES_PAY = 25
"""Points of new lines for each case up to which a steady state, which asks for 26 and more, gains by them."""


class StepArrays:
    """Joined tables of kinds of replicas that run one engine.

    Args:
        tables: one table per kind of replica.
        mechanisms: what changes their steps, in the order in which it does.
    """

    def __init__(self, tables: Sequence[PricedTable], mechanisms: Sequence[ArrayMechanism] = ()) -> None:
        self.engine, self.mechanisms = tables[0].price.engine, tuple(mechanisms)

        def figures(read: Callable[[PricedTable], float]) -> Array:
            return np.array([read(table) for table in tables], dtype=np.float64)

        self.vectors = {
            name: JoinedVectors([getattr(table, name) for table in tables])
            for name in ("padded_s", "mixed_s", "head_s", "rank_s", "experts_s")
        }
        self.grids = {
            name: JoinedGrids([getattr(table, name) for table in tables])
            for name in ("decodes", "mixed", "chunks")
        }
        self.figures = {
            "stages": figures(lambda table: table.stages),
            "ranks": figures(lambda table: table.price.pool.data),
            "fixed_s": figures(lambda table: table.price.times.first_token_s),
            "around_s": figures(lambda table: table.around_s),
            "sequence_s": figures(lambda table: table.sequence_s),
            "least_mixed_s": figures(lambda table: table.least_mixed_s),
            "prefill_factor": figures(lambda table: table.prefill_factor),
            "overlap_exponent": figures(lambda table: table.overlap_exponent),
            "graphs_mixed": figures(lambda table: table.graphs_mixed),
            "largest_graph": figures(lambda table: table.largest_graph),
            "eager_above": figures(lambda table: table.eager_above),
            "longest": figures(lambda table: len(table.mixed_s) - 1),
            "window": figures(lambda table: table.window.tokens),
            "windows": figures(lambda table: table.window.ratio),
            "idle_watts": figures(lambda table: table.power.idle_w * table.power.devices),
        }
        self.power = [table.power for table in tables]
        self._stairs = [(table.padded_s, int(table.decodes.x[-1])) for table in tables]
        self._lines: dict[tuple[int, float], Array] = {}
        """Seconds of decode steps by the sequences of a rank, of a table and a mean KV; and joined."""
        self._joined_lines: JoinedVectors

    @cached_property
    def padded(self) -> JoinedVectors:
        """Seconds by tokens of decodes: of the tables, then averaged over batches of each of ``SHARED``."""
        stairs = [seconds for seconds, _ in self._stairs]
        return JoinedVectors(
            stairs + [averaged(*stair, shared) for shared in SHARED for stair in self._stairs]
        )

    def decode_lines(
        self, which: Ints, keys: Array, most_sequences: float, spread: Ints
    ) -> Callable[[Array], Array] | None:
        """Seconds of decode steps at one mean KV of each case, by the sequences of a rank.

        Between whole numbers of sequences the tables are linear, so the cases of one replica and KV share a
        line. None where cases share so little that lines cost more than they save.

        Args:
            which: index of each case's table, shape (cases,).
            keys: mean KV of a sequence, tokens.
            most_sequences: most sequences of a rank.
            spread: see `StepCases.spread`, shape (cases,).
        """
        if not which.size:
            return None
        values, place = np.unique(keys, return_inverse=True)
        kinds = len(self.power)
        pairs, line = np.unique((which + kinds * spread) * len(values) + place, return_inverse=True)
        names = [(int(pair // len(values)), float(values[pair % len(values)])) for pair in pairs.tolist()]
        count = int(most_sequences) + 2
        missing = [name for name in names if len(self._lines.get(name, ())) < count]
        if len(missing) * count > LINES_PAY * which.size:
            return None
        if missing:
            tables, keys_of_lines = (np.repeat(column, count) for column in zip(*missing, strict=True))
            batches = np.tile(np.arange(count, dtype=np.float64), len(missing))
            cases = self.cases(tables % kinds).spreading(tables // kinds)
            seconds = cases.decode_seconds(batches, keys_of_lines.astype(np.float64))
            self._lines.update(zip(missing, seconds.reshape(-1, count), strict=True))
            self._joined_lines = JoinedVectors(list(self._lines.values()))
        numbers = {name: number for number, name in enumerate(self._lines)}
        return self._joined_lines.at(np.array([numbers[name] for name in names])[line])

    def cases(self, which: ArrayLike = 0) -> StepCases:
        """Step times of cases.

        Args:
            which: index of each case's table; a number, or an array that broadcasts with the cases.
        """
        return StepCases(self, np.asarray(which, dtype=np.int64))


class StepCases:
    """Step times of an array of cases, each in its own table."""

    verified, pace, overshoot, draws = 1.0, 1.0, 0.0, 0.0
    """Tokens of a sequence that a decode step computes, those that it yields, those beyond the last, and the
    standard deviation of those that it yields."""

    def __init__(self, arrays: StepArrays, which: Ints) -> None:
        index = int(which) if which.ndim == 0 else which
        self.arrays, self.which, self.engine = arrays, which, arrays.engine
        self.mechanisms = [mechanism.on(which) for mechanism in arrays.mechanisms]
        figures = {name: values[index] for name, values in arrays.figures.items()}
        self.stages, self.ranks = figures["stages"], figures["ranks"]
        self.idle_watts = figures["idle_watts"]
        """Of a replica's devices."""
        self.window, self.windows = figures["window"], figures["windows"]
        """Tokens that a sequence holds in sliding layers, and groups of these as large as the full ones'."""
        self.longest = figures["longest"]
        """Most tokens of a step that the tables price."""
        self.fixed_s = figures["fixed_s"]
        """Part of TTFT outside of steps, s."""
        self.around_s, self.sequence_s = figures["around_s"], figures["sequence_s"]
        self.least_mixed_s, self._prefill_factor = figures["least_mixed_s"], figures["prefill_factor"]
        self._exponent = figures["overlap_exponent"]
        self._graphs_mixed, self._largest_graph = figures["graphs_mixed"] > 0, figures["largest_graph"]
        self._eager_above = figures["eager_above"]
        self._pads_ranks = arrays.engine.pads_ranks.value
        self.spreads = bool(np.any(self.ranks > 1)) and not self._pads_ranks
        self.spread = np.zeros(which.shape, np.int64)
        """Place of a case's batches in ``SHARED``, from 1; 0 for batches of one size."""
        self._padded, self._mixed_s = (arrays.vectors[name].at(index) for name in ("padded_s", "mixed_s"))
        self._head, self._rank, self._experts = (
            arrays.vectors[name].at(index) for name in ("head_s", "rank_s", "experts_s")
        )
        self.decode_attention, self._mixed, self.chunk_attention = (
            arrays.grids[name].at(index) for name in ("decodes", "mixed", "chunks")
        )
        self._last: list[tuple[Any, Any, Array, Array]] = [(None, None, self.ranks, self.ranks)]
        """Sequences and keys of the last decode step, these sequences and their attention: steady states ask
        for a batch again, with other tokens of a sequence and with batches that vary."""

    def repeated(self, times: int) -> StepCases:
        """All cases one after the other, as often as asked."""
        return StepCases(self.arrays, np.tile(self.which, times)) if self.which.ndim else self

    def varying(self, shared: Array) -> Self:
        """The same, where decode batches vary about their mean as those of random arrivals do.

        Args:
            shared: batches among which arrivals are balanced, shape of the cases. Cases of one table vary as
                the steadiest of them.
        """
        place = np.searchsorted(SHARED, shared, side="right")
        return self.spreading(np.broadcast_to(place, self.which.shape) if self.which.ndim else place.max())

    def spreading(self, spread: Ints) -> Self:
        """The same with other batches; see ``spread``."""
        cases = copy(self)
        cases.spread = np.asarray(spread)
        index = self.which + len(self.arrays.power) * cases.spread
        cases._padded = self.arrays.padded.at(int(index) if index.ndim == 0 else index)
        return cases

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of a replica's devices during steps, hosts not counted; see `PowerModel.watts`."""
        return self.watts_by(self.arrays.power, tokens, decodes, kv_tokens, seconds)

    def watts_by(self, models: Sequence[PowerModel], *figures: ArrayLike) -> Array:
        """Power by models of the tables; figures as of `PowerModel.watts`."""
        if self.which.ndim == 0:
            return models[int(self.which)].watts(*figures, hosts=False)
        arguments = np.broadcast_arrays(self.which, *figures)
        watts = np.empty(arguments[0].shape)
        for number, power in enumerate(models):
            of_model = arguments[0] == number
            if of_model.any():
                watts[of_model] = power.watts(*(values[of_model] for values in arguments[1:]), hosts=False)
        return watts

    def decodes_at(self, keys: Array, most_sequences: float) -> Callable[[Array], Array]:
        """`decode_seconds` by a rank's sequences, at most ``most_sequences``, with one mean KV a case."""
        lines = None
        if not self.mechanisms and self.which.shape == keys.shape and keys.ndim == 1:
            lines = self.arrays.decode_lines(self.which, keys, most_sequences, self.spread)
        return lines or (lambda sequences: self.decode_seconds(sequences, keys))

    def decode_seconds(self, sequences: ArrayLike, keys: ArrayLike, verified: float = 1.0) -> Array:
        """Seconds of decode steps.

        Args:
            sequences: decoding sequences of one rank; means of a steady state may be fractional.
            keys: mean KV of a sequence, tokens.
            verified: tokens of each sequence in a step.
        """
        if not self.mechanisms:
            return self._plain_decode(sequences, keys, verified)
        batch = CaseBatch(0.0, 0.0, sequences, keys, verified=verified)
        return self._changed(lambda cases: cases._plain_decode(sequences, keys, verified), batch)

    def _changed(self, times: Callable[[StepCases], Array], batch: CaseBatch) -> Array:
        """Seconds of steps after all mechanisms, of those that plain cases take."""
        for mechanism in self.mechanisms:
            times = partial(mechanism.seconds, times, batch)
        return times(self)

    def _plain_decode(self, sequences: ArrayLike, keys: ArrayLike, verified: float) -> Array:
        batch, context, some, attention = self._last[0]
        if batch is not sequences or context is not keys:
            some = np.maximum(np.asarray(sequences, dtype=np.float64), 1e-9)
            attention = self.decode_attention(np.maximum(some, 1.0), keys)
            self._last[0] = sequences, keys, some, attention
        around = self.around_s + self.sequence_s * some
        tokens = self._padded(some * verified) + self._head(np.maximum(some, 1.0) * verified)
        return tokens + attention + around

    def mixed_seconds(
        self,
        queries: ArrayLike,
        before: ArrayLike,
        sequences: ArrayLike,
        keys: ArrayLike,
        chunks: ArrayLike = 1.0,
        ranks: ArrayLike | None = None,
        verified: float = 1.0,
    ) -> Array:
        """Seconds of steps with prefill chunks of ``queries`` tokens in total, beside decoding sequences.

        Args:
            queries: prompt tokens of the step on one rank, over all chunks.
            before: cached tokens of each prompt.
            sequences: decoding sequences of each rank.
            keys: mean KV of a decoding sequence.
            chunks: prompts among which the tokens are shared.
            ranks: data-parallel ranks with such chunks; by default all.
            verified: tokens of each decoding sequence in a step.
        """
        batch = CaseBatch(queries, before, sequences, keys, chunks, ranks, verified)
        if not self.mechanisms:
            return self._plain_mixed(batch)
        return self._changed(lambda cases: cases._plain_mixed(batch), batch)

    def _plain_mixed(self, batch: CaseBatch) -> Array:
        queries, before, sequences, keys, chunks, ranks, verified = batch
        queries = np.asarray(queries, dtype=np.float64)
        sequences = np.asarray(sequences, dtype=np.float64)
        chunks = np.asarray(chunks, dtype=np.float64)
        busy = sequences >= 0.5
        rows = sequences * verified
        alone = np.where(busy, self._padded(rows), 0.0) + self._head(rows)
        step_s = self._mixed_tokens(queries, rows, ranks) + self._head(rows + chunks)
        decoding = np.maximum(sequences, 1.0)
        alone = alone + np.where(busy, self.decode_attention(decoding, keys), 0.0)
        beside = np.where(busy, self._mixed(decoding, keys), 0.0)
        power = self._exponent
        chunks_s = chunks * self.chunk_attention(queries / chunks, before)
        plain = bool(np.all(power == 1.0))
        step_s = step_s + (chunks_s + beside if plain else (chunks_s**power + beside**power) ** (1.0 / power))
        around = self.around_s + self.sequence_s * (sequences + chunks)
        decode_s = np.where(
            rows > self._eager_above, self.around_s + self.sequence_s * sequences + alone, 0.0
        )
        least = np.maximum(decode_s, self.least_mixed_s)
        return np.maximum(around + alone + self._prefill_factor * (step_s - alone), least)

    def others_seconds(
        self,
        queries: ArrayLike,
        before: ArrayLike,
        sequences: ArrayLike,
        keys: ArrayLike,
        verified: float = 1.0,
    ) -> Array:
        """Seconds that decodes of all other ranks add to a step with one chunk on one data-parallel rank.

        Args:
            queries: tokens of the chunk.
            before: cached tokens of the prompt.
            sequences: decoding sequences of each other rank.
            keys: mean KV of a decoding sequence.
            verified: tokens of each decoding sequence in a step.
        """
        queries, sequences = np.asarray(queries, dtype=np.float64), np.asarray(sequences, dtype=np.float64)
        rows = sequences * verified
        factor = self._prefill_factor
        prompt = self.sequence_s + factor * (
            self.chunk_attention(queries, before) + self._head(np.ones_like(rows))
        )
        decode = np.where(sequences >= 0.5, self.decode_attention(np.maximum(sequences, 1.0), keys), 0.0)
        decode = decode + self._head(rows) + self.sequence_s * sequences
        # What the decodes would take by themselves runs as fast as in a decode step.
        more = np.maximum(decode - prompt, 0.0) + (1.0 - factor) * self._padded(rows)
        if not self.spreads:
            return more
        experts = self._experts(queries + (self.ranks - 1.0) * rows) - self._experts(queries)
        return more + factor * np.maximum(experts, 0.0)

    def _mixed_tokens(self, queries: Array, sequences: Array, ranks: ArrayLike | None) -> Array:
        """Seconds of products and experts of mixed steps, where ``ranks`` data-parallel ranks prefill."""
        every = queries + sequences
        padded = self._mixed_s(every)
        if not self.spreads or ranks is None:
            return padded
        experts = self._experts(np.asarray(ranks) * queries + self.ranks * sequences)
        uneven = self._rank(every) + experts
        even = (self._graphs_mixed & (every <= self._largest_graph)) | (self.ranks == 1.0)
        return np.where(even, padded, uneven)
