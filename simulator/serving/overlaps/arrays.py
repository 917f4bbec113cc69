"""Array lookups of step times with overlap, for steady states; the same formula as `OverlapSteps`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.overlaps.steps import OverlapSteps
from simulator.serving.steps.step_arrays import JoinedVectors, StepArrays, StepCases
from simulator.serving.steps.table import IterationTable

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

BY_TOKENS = ("whole", "cut", "network", "exchange")
"""Seconds by the tokens of a step: in one piece, in pieces, and the pieces' all-reduces and exchanges."""
HIDEABLE = ("network", "memory", "exchange")
NOTHING = np.zeros(2)


class OverlapArrays(StepArrays):
    """Joined tables of replicas, some of which overlap kernels inside a step.

    Args:
        tables: one table per kind of replica.
        overlapped: steps with overlap of each table; None for one without.
    """

    def __init__(self, tables: Sequence[IterationTable], overlapped: Sequence[OverlapSteps | None]) -> None:
        super().__init__(tables)
        parts = [None if steps is None else steps.by_tokens() for steps in overlapped]
        self.by_tokens = {
            name: JoinedVectors([NOTHING if part is None else part[name] for part in parts])
            for name in BY_TOKENS
        }
        figures = [_figures(steps) for steps in overlapped]
        self.figures.update({name: np.array([own[name] for own in figures], float) for name in figures[0]})

    def cases(self, which: ArrayLike = 0) -> OverlapCases:
        """Step times of cases; see `StepArrays.cases`."""
        return OverlapCases(self, np.asarray(which, dtype=np.int64))


def _figures(steps: OverlapSteps | None) -> dict[str, float]:
    """Parameters of an overlap as numbers; of none, those that save nothing."""
    if steps is None:
        return {
            **dict.fromkeys((f"hidden_{kind}" for kind in HIDEABLE), 0.0),
            **dict.fromkeys(("pieces", "kept", "kept_exchange", "longest"), 1.0),
            **dict.fromkeys(("skipped", "prompts_only", "most_tokens", "gaps", "hides_memory"), 0.0),
        }
    overlap = steps.overlap
    hides = {kind: float(kind in overlap.hides) for kind in HIDEABLE}
    return {
        **{f"hidden_{kind}": hides[kind] * (1.0 - getattr(overlap.exposed, kind)) for kind in HIDEABLE},
        "pieces": overlap.pieces,
        "kept": overlap.kept,
        "kept_exchange": overlap.kept_exchange,
        "skipped": overlap.skipped_prompt,
        "prompts_only": overlap.prompts_only,
        "most_tokens": steps.most_tokens,
        "gaps": (overlap.pieces - 1) * steps.gaps,
        "hides_memory": hides["memory"],
        "longest": overlap.longest,
    }


def _rows(values: ArrayLike, rows: Ints) -> Any:
    """Some of the cases; a number is that of all."""
    values = np.asarray(values)
    return values if values.ndim == 0 else values[rows]


class OverlapCases(StepCases):
    """Step times of an array of cases whose kernels may overlap."""

    arrays: OverlapArrays

    def __init__(self, arrays: OverlapArrays, which: Ints) -> None:
        super().__init__(arrays, which)
        index = int(which) if which.ndim == 0 else which
        self._own = {name: values[index] for name, values in arrays.figures.items()}
        self._parts = {name: vectors.at(index) for name, vectors in arrays.by_tokens.items()}
        self._overlapping = np.flatnonzero(self._own["most_tokens"]) if which.ndim == 1 else None
        """Cases with an overlap, by number; None where cases are no list."""
        self._keys: tuple[Any, Any] = None, None

    def decode_seconds(self, sequences: ArrayLike, keys: ArrayLike, verified: float = 1.0) -> Array:
        """Seconds of decode steps; see `StepCases.decode_seconds`."""
        seconds = super().decode_seconds(sequences, keys, verified)
        return self._shorter(seconds, 0.0, 0.0, sequences, keys, 1.0, None, verified)

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
        """Seconds of steps with prefill chunks; see `StepCases.mixed_seconds`."""
        seconds = super().mixed_seconds(queries, before, sequences, keys, chunks, ranks, verified)
        return self._shorter(seconds, queries, before, sequences, keys, chunks, ranks, verified)

    @cached_property
    def _part(self) -> OverlapCases:
        """The cases with an overlap."""
        return OverlapCases(self.arrays, self.which[self._overlapping])

    def _shorter(
        self,
        seconds: Array,
        queries: ArrayLike,
        before: ArrayLike,
        sequences: ArrayLike,
        keys: ArrayLike,
        chunks: ArrayLike,
        ranks: ArrayLike | None,
        verified: float,
    ) -> Array:
        """Seconds of steps without those that an overlap saves, of which few cases may have any."""
        rows = self._overlapping
        if rows is None or seconds.shape != self.which.shape:
            return seconds - self._saved_by(
                seconds, queries, before, sequences, keys, chunks, ranks, verified
            )
        if not len(rows):
            return seconds
        if self._keys[0] is not keys:
            # Steady states ask for the same keys in every iteration.
            self._keys = keys, _rows(keys, rows)
        prompts, cached, decodes = (_rows(values, rows) for values in (queries, before, sequences))
        filled = None if ranks is None else _rows(ranks, rows)
        seconds[rows] -= self._part._saved_by(
            seconds[rows], prompts, cached, decodes, self._keys[1], _rows(chunks, rows), filled, verified
        )
        return seconds

    def _saved_by(
        self,
        seconds: Array,
        queries: ArrayLike,
        before: ArrayLike,
        sequences: ArrayLike,
        keys: ArrayLike,
        chunks: ArrayLike,
        ranks: ArrayLike | None,
        verified: float,
    ) -> Array:
        """Seconds that a step is shorter, by arguments of `mixed_seconds`; without queries, it decodes."""
        decodes = np.asarray(sequences, dtype=np.float64)
        if np.ndim(queries) == 0 and not queries:
            none = np.zeros_like(decodes)
            return self._saved(seconds, none, decodes, keys, verified, none, decodes * verified)
        prompt, count = np.asarray(queries, dtype=np.float64), np.asarray(chunks, dtype=np.float64)
        attention = count * self._chunks(prompt / count, before)
        filled = self.ranks if ranks is None or not self._spreads else np.asarray(ranks, dtype=np.float64)
        mean = filled / self.ranks * prompt + decodes * verified
        return self._saved(seconds, prompt, decodes, keys, verified, attention, mean)

    def _saved(
        self,
        seconds: Array,
        prompt: Array,
        decodes: Array,
        keys: ArrayLike,
        verified: float,
        chunks: Array,
        exchanged: Array,
    ) -> Array:
        """Seconds that a step is shorter; see `OverlapSteps`."""
        own = self._own
        tokens = prompt + decodes * verified
        whole, cut, network, every = (self._parts[name](tokens) for name in BY_TOKENS)
        exchange = self._parts["exchange"](np.minimum(exchanged, tokens))
        memory = np.where(decodes >= 0.5, self._decodes(np.maximum(decodes, 1.0), keys), 0.0)
        compute = np.maximum(cut - network - every, 0.0) + chunks
        skipped = own["skipped"] * (prompt / np.maximum(tokens, 1.0) * (cut - every) + chunks)
        dropped = skipped + (1.0 - own["kept"]) * network + (1.0 - own["kept_exchange"]) * exchange
        kinds = {
            "network": own["kept"] * network,
            "memory": memory,
            "exchange": own["kept_exchange"] * exchange,
        }
        rest = compute + kinds["network"] + memory + kinds["exchange"]
        hidden = np.zeros_like(rest)
        for kind, kind_s in kinds.items():
            hidden = hidden + own[f"hidden_{kind}"] * np.minimum(kind_s, np.maximum(rest - kind_s, 0.0))
        hidden = np.minimum(hidden, compute + (1.0 - own["hides_memory"]) * memory)
        # What is charged is at most the step: its longest stream stays.
        hidden = np.minimum(hidden, (1.0 - own["longest"]) * np.maximum(seconds - dropped, 0.0))
        saved = np.minimum(dropped, seconds) + hidden - (cut - whole) - own["gaps"]
        overlaps = (tokens >= own["pieces"]) & (tokens < own["most_tokens"])
        return np.where(overlaps & ((prompt > 0.0) | (own["prompts_only"] == 0.0)), saved, 0.0)
