"""Overlap in the array lookups of step times, for steady states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.overlaps.saved import ARRAYS, OverlapFigures, PieceTimes, saved_seconds
from simulator.serving.overlaps.steps import OverlapSteps
from simulator.serving.steps.case_mechanism import CaseBatch
from simulator.serving.steps.joined import JoinedVectors
from simulator.serving.steps.step_arrays import StepCases

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

BY_TOKENS = ("whole", "cut", "network", "exchange")
"""Seconds by the tokens of a step: in one piece, in pieces, and the pieces' all-reduces and exchanges."""
NOTHING = np.zeros(2)


class Overlaps:
    """Overlap in joined tables of replicas.

    Args:
        overlapped: steps with overlap of each table; None for one without.
    """

    def __init__(self, overlapped: Sequence[OverlapSteps | None]) -> None:
        parts = [None if steps is None else steps.by_tokens() for steps in overlapped]
        self.by_tokens = {
            name: JoinedVectors([NOTHING if part is None else part[name] for part in parts])
            for name in BY_TOKENS
        }
        figures = [OverlapFigures() if steps is None else steps.figures for steps in overlapped]
        self.figures = [np.array(column, float) for column in zip(*figures, strict=True)]

    def on(self, which: Ints) -> OverlapsOfCases:
        """See `ArrayMechanism.on`."""
        return OverlapsOfCases(self, which)


def _rows(values: ArrayLike, rows: Ints) -> Any:
    """Some of the cases, which the last axis counts; a number is that of all."""
    values = np.asarray(values)
    return values if values.ndim == 0 else values[..., rows]


class OverlapsOfCases:
    """Overlap of an array of cases, of which few may have any."""

    def __init__(self, overlaps: Overlaps, which: Ints) -> None:
        index = int(which) if which.ndim == 0 else which
        self.overlaps, self.which = overlaps, which
        self._figures = OverlapFigures(*(values[index] for values in overlaps.figures))
        self._parts = [overlaps.by_tokens[name].at(index) for name in BY_TOKENS]
        self._overlapping = np.flatnonzero(self._figures.most_tokens) if which.ndim == 1 else None
        """Cases with an overlap, by number; None where cases are no list."""
        self._keys: tuple[Any, Any] = None, None
        self._part: tuple[OverlapsOfCases, StepCases] | None = None

    def seconds(self, times: Callable[[StepCases], Array], batch: CaseBatch, cases: StepCases) -> Array:
        """Seconds of steps without those that an overlap saves; see `CaseMechanism.seconds`."""
        seconds, rows = times(cases), self._overlapping
        if rows is None or seconds.shape[-1:] != self.which.shape:
            return seconds - self._saved(seconds, batch, cases)
        if not len(rows):
            return seconds
        if self._part is None:
            part = self.which[rows]
            self._part = OverlapsOfCases(self.overlaps, part), StepCases(cases.arrays, part)
        if self._keys[0] is not batch.keys:
            # Steady states ask for the same keys in every iteration.
            self._keys = batch.keys, _rows(batch.keys, rows)
        overlap, few = self._part
        ranks = None if batch.ranks is None else _rows(batch.ranks, rows)
        queries, before, sequences, chunks = (
            _rows(values, rows) for values in (batch.queries, batch.before, batch.sequences, batch.chunks)
        )
        part_batch = CaseBatch(queries, before, sequences, self._keys[1], chunks, ranks, batch.verified)
        seconds[..., rows] -= overlap._saved(seconds[..., rows], part_batch, few)
        return seconds

    def _saved(self, seconds: Array, batch: CaseBatch, cases: StepCases) -> Array:
        """Seconds that steps are shorter; see `OverlapSteps`."""
        figures, verified = self._figures, batch.verified
        decodes = np.asarray(batch.sequences, dtype=np.float64)
        prompt = np.asarray(batch.queries, dtype=np.float64)
        if prompt.ndim or prompt:
            count = np.asarray(batch.chunks, dtype=np.float64)
            attention = count * cases.chunk_attention(prompt / count, batch.before)
            together = batch.ranks is None or not cases.spreads
            filled = cases.ranks if together else np.asarray(batch.ranks, dtype=np.float64)
            tokens = prompt + decodes * verified
            exchanged = filled / cases.ranks * prompt + decodes * verified
        else:
            prompt = attention = np.zeros_like(decodes)
            tokens = exchanged = decodes * verified
        uncut, cut, network, every = (part(tokens) for part in self._parts)
        exchange = every if exchanged is tokens else self._parts[-1](np.minimum(exchanged, tokens))
        memory = cases.decode_attention(np.maximum(decodes, 1.0), batch.keys)
        memory = np.where(decodes >= 0.5, memory, 0.0)
        times = PieceTimes(uncut, cut, network, every, exchange, memory, attention)
        saved = saved_seconds(figures, seconds, prompt, tokens, times, ARRAYS)
        overlaps = (tokens >= figures.pieces) & (tokens < figures.most_tokens)
        return np.where(overlaps & ((prompt > 0.0) | (figures.prompts_only == 0.0)), saved, 0.0)
