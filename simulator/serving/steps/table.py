"""The iteration table: parts of a step priced once in arrays, with scalar and array lookups.

A step is the sum of a function of its tokens (products, norms, all-reduces, experts), one of its sampled
rows, one of each prefill chunk (queries, cached tokens) and one of its decodes (sequences, mean KV). Each is
priced on a grid when a run starts; between knots the table is linear. A test holds it to `StepPrice` within
1 %. Outside its grid, steps are priced in full.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from core.arrays import distinct
from simulator.serving.steps.joined import Grid, knots_below
from simulator.serving.steps.knots import TILE, at_every, geometric, stepped, tile_knots
from simulator.serving.steps.memory import window_of
from simulator.serving.steps.power import PowerModel
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_arrays import StepArrays, StepCases
from simulator.serving.steps.step_times import Chunk, RankBatch, Stretch

Array = NDArray[np.float64]

SHORTEST_CONTEXT = 16
"""Cached tokens from which the grids begin."""
NO_END = 1 << 60


Row = tuple[list[float], list[float], list[float], list[float], float, float]
"""Of a number of decodes: seconds of their attention at the knots of their mean KV and slopes between them,
the same beside prefill chunks, and seconds of a decode step outside of attention and of its host time."""


def _below(knots: Array) -> array[int]:
    """The knot below each whole number up to the last one."""
    return array("H", knots_below(knots).astype(np.uint16).tobytes())


class ChunkLines(dict[int, tuple[float, float, list[float], list[float]]]):
    """Intervals of prefill chunks, made when first asked for: queries and width, and the lines at both ends
    along the cached tokens."""

    def __init__(self, grid: Grid) -> None:
        super().__init__()
        self._x, self._z = grid.x, grid.z

    def __missing__(self, at: int) -> tuple[float, float, list[float], list[float]]:
        """The interval above a knot."""
        x, (low, high) = self._x, self._z[at : at + 2].tolist()
        line = self[at] = float(x[at]), float(x[at + 1] - x[at]), low, high
        return line


class IterationTable:
    """`StepTimes` of one kind of replica, from grids.

    Args:
        price: the full price.
        max_tokens: maximum query tokens of a step on one rank.
        max_sequences: maximum decoding sequences of a rank.
        max_context: maximum tokens of a sequence.
        graphs: captured sizes to which token counts are padded; the engine's where not given.
        like: table with the same limits of a replica that differs in pipeline stages, attention ranks or
            experts only: times of attention, products and sampling are taken from it.
        ranks: the same, of a replica whose KV or longest context may differ: without times of attention.
        spread: the same, of a replica that differs in its pipeline stages, its KV or its longest context:
            times of experts and of their exchange.
        longest_chunk: longest prefill chunk on the grid, where steps have no longer ones.
    """

    def __init__(
        self,
        price: StepPrice,
        max_tokens: int,
        max_sequences: int,
        max_context: int,
        graphs: NDArray[np.int64] | None = None,
        like: IterationTable | None = None,
        longest_chunk: int | None = None,
        ranks: IterationTable | None = None,
        spread: IterationTable | None = None,
    ) -> None:
        self.price, self.stages = price, price.pool.pipeline
        self.max_tokens = max(max_tokens, max_sequences) + max_sequences
        self.max_sequences, self.max_context = max_sequences, max(max_context, 2 * SHORTEST_CONTEXT)
        self.longest_chunk = self.max_tokens
        if longest_chunk is not None:
            # Whole tiles: the knots below are those of the whole grid.
            self.longest_chunk = min(-(-longest_chunk // TILE) * TILE, self.max_tokens)
        self.sizes = price.graphs if graphs is None else graphs
        self.graphs_mixed = price.graphs_mixed
        self.largest_graph = int(self.sizes[-1]) if len(self.sizes) else 0
        self.prefill_factor = price.times.prefill_factor
        self.power = PowerModel.of(price)
        self.window = window_of(price)
        self._rows: defaultdict[int, dict[int, Row]] = defaultdict(dict)
        """By tokens of each decoding sequence, and number of them."""
        self._longer_chunks: dict[tuple[int, int], float] = {}
        """Seconds of chunks outside the grid: routers ask the same whole prompt of each replica."""
        self._larger_steps: dict[int, float] = {}
        """Seconds of products of more tokens than a step may have."""
        ranks = ranks if like is None else like
        if ranks is None:
            self._price_rank()
        else:
            self.inside_s, self.head_s = ranks.inside_s, ranks.head_s
        if like is None:
            self._price_attention()
        else:
            self.decodes, self.mixed, self.chunks = like.decodes, like.mixed, like.chunks
            self.overlap_exponent = like.overlap_exponent
        self.experts_s = self._price_experts() if spread is None else spread.experts_s
        self._price_tokens()
        self._pad()
        self._listed = False
        self._around = [float(s) for s in price.around(np.arange(self.max_sequences + 1))]
        self.around_s, self.sequence_s = self._around[0], price.times.sequence_s

    @property
    def host_s(self) -> list[float]:
        """Seconds of the host around a step by its number of sequences."""
        return self._around

    @cached_property
    def attention_products_s(self) -> Array:
        """Seconds of attention's products by decoding tokens, padded as a step is."""
        return at_every(partial(self.price.inside_stages, attention=True), self.max_tokens)[self.padded]

    # Made once

    def _price_rank(self) -> None:
        self.inside_s = at_every(self.price.inside_stages, self.max_tokens)
        rows = distinct(np.concatenate([np.arange(1, 65), geometric(64, 2 * self.max_sequences + 64)]))
        most_rows = int(rows[-1])
        self.head_s = np.interp(np.arange(most_rows + 1), rows, self.price.head(rows))
        self.head_s[0] = 0.0

    def _price_experts(self) -> Array:
        """Seconds of experts and their exchange by tokens of all attention ranks."""
        return at_every(self.price.experts, self.max_tokens * self.price.pool.data)

    def _price_tokens(self) -> None:
        data = self.price.pool.data
        self.rank_s = self.inside_s + self.price.between_stages(np.arange(len(self.inside_s), dtype=float))
        self.rank_s[0] = 0.0
        self.tokens_s = self.rank_s + self.experts_s[::data][: len(self.rank_s)]

    def _price_attention(self) -> None:
        few, many = np.arange(1, min(self.max_sequences, 256) + 1), np.arange(256, self.max_sequences, 4)
        counts = distinct(np.concatenate([few, many]))
        counts = np.append(counts[counts < self.max_sequences], self.max_sequences).astype(np.float64)
        if len(counts) < 2:
            counts = np.array([1.0, 2.0])
        keys = geometric(SHORTEST_CONTEXT, self.max_context)
        decodes = self.price.decode_attention(counts[:, None], keys[None, :])
        self.decodes = Grid(counts, keys, decodes)
        self.mixed = self.decodes
        if self.price.mixes or self.price.scans_decodes:
            beside = self.price.decodes_in_prefill(counts[:, None], keys[None, :])
            self.mixed = Grid(counts, keys, beside)
        self.overlap_exponent = self.price.overlap_exponent
        before = np.concatenate([[0.0], geometric(SHORTEST_CONTEXT, self.max_context)])
        queries, chunks = stepped(
            lambda count: self.price.prefill_attention(count[:, None], count[:, None] + before),
            tile_knots(self.longest_chunk),
        )
        self.chunks = Grid(queries, before, chunks)

    def _pad(self) -> None:
        """Seconds by token count: decodes padded to captured sizes, or no less than the launches of all
        layers."""
        sizes, every = self.sizes, np.arange(self.max_tokens + 1)
        index = np.searchsorted(sizes, every)
        inside = index < len(sizes)
        padded = np.where(inside, sizes[np.minimum(index, len(sizes) - 1)], every) if len(sizes) else every
        padded = np.minimum(padded, self.max_tokens)
        padded[0] = 0
        self.eager_s = max(self.price.eager - self.price.gaps, 0.0)
        eager = np.maximum(self.tokens_s, self.eager_s * (every > 0))
        self.padded = padded
        self.padded_s = np.where(inside, self.tokens_s[padded], eager)
        self.least_mixed_s = 0.0 if self.graphs_mixed else self.price.eager
        self.mixed_s = self.padded_s if self.graphs_mixed else self.tokens_s
        self.eager_above = NO_END if self.graphs_mixed else self.largest_graph
        """Tokens of decodes beyond which a prompt makes no step shorter: neither runs in a graph."""

    # Scalar interface: the event engine. Its lists, which searches do not need, are made at the first step:
    # as plain attributes, which Python reads faster than cached properties.

    def _make_lists(self) -> None:
        self._padded_s, self._mixed_s = self.padded_s.tolist(), self.mixed_s.tolist()
        self._head_s, self._keys = self.head_s.tolist(), self.decodes.y.tolist()
        self._below_keys = _below(self.decodes.y)
        x, y = self.chunks.x, self.chunks.y
        self._chunk_lines = ChunkLines(self.chunks), _below(x), _below(y), y.tolist(), np.diff(y).tolist()
        self._listed = True

    def _decode_s(self, decodes: int, kv_tokens: int) -> tuple[float, float]:
        """Seconds of attention of decodes, alone and beside prefill chunks."""
        if not decodes:
            return 0.0, 0.0
        values, slopes, mixed_values, mixed_slopes, _, _ = self._rows[1].get(decodes) or self._row(decodes, 1)
        mean = kv_tokens / decodes
        index = int(mean)
        at = self._below_keys[index] if index < len(self._below_keys) else len(slopes) - 1
        past = mean - self._keys[at]
        return values[at] + slopes[at] * past, mixed_values[at] + mixed_slopes[at] * past

    def decode_attention_s(self, decodes: int, kv_tokens: int) -> float:
        """Seconds of attention of decodes in a step without prompts."""
        return self._decode_s(decodes, kv_tokens)[0]

    def chunk_attention_s(self, queries: int, before: int) -> float:
        """Seconds of attention of one prefill chunk over its ``before`` cached tokens."""
        return self._chunk_s(queries, before)

    def _chunk_s(self, queries: int, before: int) -> float:
        lines, below_x, below_y, y, widths = self._chunk_lines
        if queries >= len(below_x) or before >= len(below_y):
            seconds = self._longer_chunks.get((queries, before))
            if seconds is None:
                seconds = float(self.price.prefill_attention(queries, queries + before))
                self._longer_chunks[queries, before] = seconds
            return seconds
        first, width, low, high = lines[below_x[queries]]
        j = below_y[before]
        u = (queries - first) / width
        v = (before - y[j]) / widths[j]
        if not v:
            return low[j] * (1 - u) + high[j] * u
        return (low[j] * (1 - v) + low[j + 1] * v) * (1 - u) + (high[j] * (1 - v) + high[j + 1] * v) * u

    def _tokens_at(self, tokens: int, padded: bool) -> float:
        table = self._padded_s if padded else self._mixed_s
        if tokens < len(table):
            return table[tokens]
        seconds = self._larger_steps.get(tokens)
        if seconds is None:
            ranks = self.price.pool.data
            seconds = float(self.price.linear(tokens) + self.price.experts(tokens * ranks))
            self._larger_steps[tokens] = seconds
        return seconds

    def _around_at(self, sequences: int) -> float:
        if sequences < len(self._around):
            return self._around[sequences]
        return self._around[-1] + self.sequence_s * (sequences + 1 - len(self._around))

    def _head_at(self, rows: int) -> float:
        return self._head_s[rows] if rows < len(self._head_s) else float(self.price.head(rows))

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """Seconds of one step; see `StepTimes`."""
        if not self._listed:
            self._make_lists()
        alone, beside, attention, outside = 0.0, 0.0, 0.0, 0.0
        if decodes:
            row = self._rows[queries].get(decodes) or self._row(decodes, queries)
            values, slopes, mixed_values, mixed_slopes, outside, around = row
            mean, below = kv_tokens / decodes, self._below_keys
            index = int(mean)
            at = below[index] if index < len(below) else len(slopes) - 1
            past = mean - self._keys[at]
            attention = values[at] + slopes[at] * past
            if not prefills:
                return attention + outside
            alone = attention + outside - around
            beside = mixed_values[at] + mixed_slopes[at] * past
        elif not prefills:
            return 0.0
        tokens, chunks = decodes * queries, 0.0
        sequences, rows = decodes + len(prefills), tokens + len(prefills)
        for new, before in prefills:
            tokens += new
            chunks += self._chunk_s(new, before)
        if beside:
            power = self.overlap_exponent
            chunks = (chunks**power + beside**power) ** (1.0 / power) if power != 1.0 else chunks + beside
        head, table, hosts = self._head_s, self._mixed_s, self._around
        mixed = table[tokens] if tokens < len(table) else self._tokens_at(tokens, False)
        mixed += head[rows] if rows < len(head) else self._head_at(rows)
        mixed += chunks
        around = hosts[sequences] if sequences < len(hosts) else self._around_at(sequences)
        seconds = around + alone + self.prefill_factor * (mixed - alone)
        least = self.least_mixed_s
        if decodes * queries > self.eager_above:
            least = max(least, attention + outside)
        return seconds if seconds > least else least

    @property
    def below_keys(self) -> array[int]:
        """The knot below each whole number of mean KV tokens."""
        if not self._listed:
            self._make_lists()
        return self._below_keys

    def decode_row(self, decodes: int) -> tuple[list[float], list[float], float]:
        """Seconds of attention of a number of decodes at the knots, slopes between them, other seconds."""
        values, slopes, _, _, outside, _ = self._rows[1].get(decodes) or self._row(decodes, 1)
        return values, slopes, outside

    def _row(self, decodes: int, queries: int) -> Row:
        """Make the row of a number of decodes with ``queries`` tokens each."""
        if not self._listed:
            self._make_lists()
        keys = self.decodes.y
        widths = np.diff(keys)
        lines = []
        for grid in (self.decodes, self.mixed):
            values = grid(float(decodes), keys)
            lines += [values.tolist(), (np.diff(values) / widths).tolist()]
        around, tokens = self._around_at(decodes), decodes * queries
        row = *lines, around + self._tokens_at(tokens, True) + self._head_at(tokens), around
        self._rows[queries][decodes] = row
        return row

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """Seconds of decode steps from here to the next knot of the table."""
        values, slopes, _, _, outside, _ = self._rows[queries].get(decodes) or self._row(decodes, queries)
        mean, keys, below = kv_tokens / decodes, self._keys, self._below_keys
        index = int(mean)
        at = below[index] if index < len(below) else len(slopes) - 1
        slope = slopes[at]
        first = values[at] + slope * (mean - keys[at]) + outside
        if at + 2 >= len(keys):
            return first, slope * queries, NO_END
        steps = int((keys[at + 1] - mean) / queries) + 1
        return first, slope * queries, steps if steps > 1 else 1

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """Seconds of one step of attention ranks that share experts: the slowest rank's own work, and
        experts of all ranks' tokens; in a graph, each rank is padded to the largest."""
        if not self._listed:
            self._make_lists()
        tokens, verified, rank_s, prompts = [], [], 0.0, False
        for batch in ranks:
            seconds = self._own(batch, queries)
            if seconds > rank_s:
                rank_s = seconds
            rows = batch.decodes * queries
            verified.append(rows)
            for chunk in batch.prefills:
                rows += chunk[0]
                prompts = True
            tokens.append(rows)
        if not any(tokens):
            return 0.0
        alone = self._shared(verified, True)
        if not prompts:
            return rank_s + alone
        mixed = self._shared(tokens, self.graphs_mixed)
        if max(verified) > self.eager_above:
            mixed = max(mixed, alone)
        return max(rank_s + alone + self.prefill_factor * (mixed - alone), self.least_mixed_s)

    def _shared(self, tokens: Sequence[int], graphed: bool) -> float:
        """Seconds of products and experts of ranks in lockstep; ``tokens`` are those of each rank."""
        most_tokens = max(tokens)
        if not most_tokens:
            return 0.0
        launched = graphed and most_tokens > self.largest_graph
        graphed = graphed and not launched
        padded = self.padded.item(most_tokens) if graphed and most_tokens < len(self.padded) else most_tokens
        rank_s = self.rank_s.item(padded) if padded < len(self.rank_s) else float(self.price.linear(padded))
        even = graphed or self.price.engine.pads_ranks.value
        all_tokens = min(len(tokens) * padded if even else sum(tokens), len(self.experts_s) - 1)
        seconds = rank_s + self.experts_s.item(all_tokens)
        return max(seconds, self.eager_s) if launched else seconds

    def _own(self, batch: RankBatch, queries: int = 1) -> float:
        """Seconds of one rank in lockstep beside products and experts."""
        prefills, decodes, kv_tokens = batch
        hosts, head, sequences, rows = self._around, self._head_s, decodes + len(prefills), decodes * queries
        around = hosts[sequences] if sequences < len(hosts) else self._around_at(sequences)
        if not sequences:
            return around
        alone = beside = 0.0
        if decodes:
            values, slopes, mixed_values, mixed_slopes, _, _ = self._rows[1].get(decodes) or self._row(
                decodes, 1
            )
            mean, below = kv_tokens / decodes, self._below_keys
            index = int(mean)
            at = below[index] if index < len(below) else len(slopes) - 1
            past = mean - self._keys[at]
            alone, beside = values[at] + slopes[at] * past, mixed_values[at] + mixed_slopes[at] * past
        alone += head[rows] if rows < len(head) else self._head_at(rows)
        if not prefills:
            return around + alone
        chunks, power = 0.0, self.overlap_exponent
        for new, before in prefills:
            chunks += self._chunk_s(new, before)
        mixed = (chunks**power + beside**power) ** (1.0 / power) if power != 1.0 else chunks + beside
        mixed += self._head_at(rows + len(prefills))
        return around + alone + self.prefill_factor * (mixed - alone)

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of all devices of the replica and its share of their hosts during steps; see `StepTimes`."""
        return self.power.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """Seconds of one step by part."""
        total = self.step(prefills, decodes, kv_tokens)
        sequences = decodes + len(prefills)
        tokens = decodes + sum(chunk[0] for chunk in prefills)
        parts = {"sampling": self._head_at(sequences), "host": self._around_at(sequences)}
        chunks, power = sum(self._chunk_s(*chunk) for chunk in prefills), self.overlap_exponent
        alone, beside = self._decode_s(decodes, kv_tokens)
        attention = (chunks**power + beside**power) ** (1.0 / power) if prefills else alone
        attention *= self.prefill_factor if prefills else 1.0
        experts = float(self.experts_s[min(tokens * self.price.pool.data, len(self.experts_s) - 1)])
        parts |= {"attention": attention, "experts": min(experts, total)}
        parts["linear"] = total - sum(parts.values())
        return parts

    # Array interface: steady states

    @cached_property
    def cases(self) -> StepCases:
        """Step times of arrays of cases, all on this kind of replica."""
        return StepArrays([self]).cases()
