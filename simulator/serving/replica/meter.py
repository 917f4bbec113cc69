"""Statistics of one replica's steps: rows are buffered, then summed in arrays.

Memory does not grow with the length of the run.
"""

from __future__ import annotations

from math import exp
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from core.errors import InputError
from simulator.serving.steps.finetuned import SlackSteps
from simulator.serving.steps.step_times import StepTimes

Array = NDArray[np.float64]

WIDTH = 11
"""Numbers of a row: one step, or a stretch of equal ones."""
ROWS = 2048
"""Rows that are summed together."""
FULL = ROWS * WIDTH
"""Buffered numbers at which rows are summed."""
GAP_STEPS = 200.0
"""Bins of the histogram of token gaps per factor e: 0.5 % each."""
MOST_TRACED = 500_000
"""Maximum steps of a traced run."""
LEAST_GAP, MOST_GAP = -4000, 4000
"""Bins of the histogram: gaps of 2 ns to 16 years."""
MOST_BINS = 256
"""Bins of a time series; when they are full, neighbouring bins are merged."""
KINDS = ("prefill", "mixed", "decode")
PREFILL, MIXED, DECODE = range(len(KINDS))


class Slice(NamedTuple):
    """A step or a stretch of equal steps, for traces."""

    start_s: float
    seconds: float
    steps: int
    decodes: int
    prompt_tokens: int
    waiting: int
    running: int
    kv_blocks: int


class TraceRoom:
    """Steps that a trace may still keep."""

    def __init__(self, steps: int = MOST_TRACED) -> None:
        self._most = self._left = steps

    def take(self, steps: int) -> None:
        """Reserve room for ``steps`` more steps.

        Raises:
            InputError: the trace would be too large.
        """
        self._left -= steps
        if self._left < 0:
            raise InputError(
                f"a trace keeps at most {self._most:,} steps; fewer requests need fewer", "--trace"
            )


class Series:
    """Sums over time in bins that widen as the run grows."""

    def __init__(self) -> None:
        self.width_s = 0.25
        self._sums = np.zeros((5, MOST_BINS))
        self._used = 0

    @property
    def bins(self) -> Array:
        """Busy seconds, and running, waiting, blocks times seconds, output tokens; shape (bins, 5)."""
        return self._sums[:, : self._used].T

    def add(self, start: Array, end: Array, values: Array) -> None:
        """Add busy times, spread over the bins that they cross.

        Args:
            start, end: seconds, shape (steps,).
            values: amount of each sum over a whole step, shape (5, steps).
        """
        while end.max() >= MOST_BINS * self.width_s:
            self._widen()
        first, last = (start / self.width_s).astype(np.int64), (end / self.width_s).astype(np.int64)
        self._used = max(self._used, int(last.max()) + 1)
        crossed = last - first + 1
        bins, share = first, 1.0
        if crossed.max() > 1:
            row = np.repeat(np.arange(len(first)), crossed)
            bins = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(crossed) - crossed, crossed)
            low, high = bins * self.width_s, (bins + 1) * self.width_s
            inside = np.minimum(high, end[row]) - np.maximum(low, start[row])
            share = np.where(crossed[row] > 1, inside / np.maximum((end - start)[row], 1e-300), 1.0)
            values = values[:, row]
        for sums, amounts in zip(self._sums, values * share, strict=True):
            sums += np.bincount(bins, amounts, MOST_BINS)

    def _widen(self) -> None:
        halved = self._sums.reshape(5, MOST_BINS // 2, 2).sum(axis=2)
        self._sums = np.concatenate([halved, np.zeros_like(halved)], axis=1)
        self._used = (self._used + 1) // 2
        self.width_s *= 2


class Totals:
    """Sums over all steps of a replica."""

    def __init__(self) -> None:
        self.series = Series()
        self._seconds = np.zeros(len(KINDS))
        self._steps = np.zeros(len(KINDS))
        self._gaps = np.zeros(MOST_GAP - LEAST_GAP)
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.decode_slots = 0
        """Sum over decode steps of sequences."""
        self.kv_read = 0
        """Sum over steps of the KV tokens that decodes read."""
        self.joules = 0.0
        self.tuned = 0.0
        """Fine-tuning tokens that steps computed."""
        self.last_s = 0.0
        """End of the last step, s."""

    def add(self, rows: Array, model: StepTimes) -> None:
        """Add steps and stretches of decode steps.

        Args:
            rows: shape (11, rows): start and end, s; time of the last token of the sequences that decode, s;
                steps; decodes, their KV tokens and prompt tokens of the first step; first tokens; sequences
                in slots and waiting, and KV blocks in use.
            model: for power.
        """
        start, end, since, count, decodes, kv_tokens, prompt, firsts, running, waiting, blocks = rows
        seconds, slots = end - start, decodes * count
        self.last_s = max(self.last_s, float(end.max()))
        kind = np.where(prompt > 0, np.where(decodes > 0, MIXED, PREFILL), DECODE)
        self._seconds += np.bincount(kind, seconds, len(KINDS))
        self._steps += np.bincount(kind, count, len(KINDS))
        tokens = slots + firsts
        self.prompt_tokens += int(prompt.sum())
        self.output_tokens += int(tokens.sum())
        self.decode_slots += int(slots.sum())
        self.kv_read += int((kv_tokens * count).sum())
        gap = (end - since) / count
        seen = (decodes > 0) & (gap > 0.0)
        bins = np.clip(np.log(gap[seen]) * GAP_STEPS, LEAST_GAP, MOST_GAP - 1).astype(np.int64) - LEAST_GAP
        self._gaps += np.bincount(bins, slots[seen], len(self._gaps))
        watts = model.watts(decodes + prompt, decodes, kv_tokens, np.maximum(seconds / count, 1e-9))
        self.joules += float((watts * seconds).sum())
        if isinstance(model, SlackSteps):
            self.tuned += model.tuned_tokens(seconds, count, decodes, kv_tokens, prompt)
        values = np.stack([seconds, seconds * running, seconds * waiting, seconds * blocks, tokens])
        self.series.add(start, end, values)

    @property
    def gaps(self) -> dict[int, int]:
        """Tokens by bin of the gap before them: ``GAP_STEPS`` bins a factor e."""
        return {int(index) + LEAST_GAP: int(self._gaps[index]) for index in np.flatnonzero(self._gaps)}

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by kind of step."""
        return dict(zip(KINDS, self._seconds.tolist(), strict=True))

    @property
    def steps(self) -> dict[str, int]:
        """Steps by kind."""
        return dict(zip(KINDS, (int(count) for count in self._steps), strict=True))

    @property
    def busy_s(self) -> float:
        """Seconds in steps."""
        return float(self._seconds.sum())


class Meter:
    """Records the steps of one replica.

    Args:
        steps: step times, used for power.
        kv_total: KV blocks of the replica.
        room: for a trace, which keeps every step; shared by the replicas of a run.
    """

    def __init__(self, steps: StepTimes, kv_total: int, room: TraceRoom | None = None) -> None:
        self.model, self.kv_total = steps, kv_total
        self._totals = Totals()
        self._room, self._slices = room, list[Slice]()
        self.cells: list[float] = []
        """Rows to add up, each as `Totals.add` takes it, one after the other."""

    @property
    def traced(self) -> bool:
        """Whether it keeps every step."""
        return self._room is not None

    @property
    def totals(self) -> Totals:
        """Sums of all steps so far."""
        if self.cells:
            self.add_up()
        return self._totals

    @property
    def slices(self) -> list[Slice]:
        """All steps so far; none where the run is not traced."""
        if self.cells:
            self.add_up()
        return self._slices

    def use(self, steps: StepTimes) -> None:
        """Use the power model of ``steps`` from now on."""
        if self.cells:
            self.add_up()
        self.model = steps

    def add_up(self) -> None:
        """Sum the buffered rows; replicas call it when ``FULL`` numbers are buffered."""
        self.add(np.fromiter(self.cells, np.float64, len(self.cells)).reshape(-1, WIDTH))
        self.cells.clear()

    def add(self, rows: Array) -> None:
        """Sum rows as `Totals.add` takes them, shape (rows, 11), but with free blocks at their end."""
        rows[:, -1] = self.kv_total - rows[:, -1]
        self._totals.add(rows.T, self.model)
        if self._room is not None:
            self._room.take(len(rows))
            for start, end, _, count, decodes, _, prompt, _, running, waiting, blocks in rows.tolist():
                counts = map(int, (count, decodes, prompt, waiting, running, blocks))
                self._slices.append(Slice(start, end - start, *counts))


def gap_percentiles(gaps: dict[int, int], shares: tuple[float, ...]) -> list[float]:
    """Percentiles of gaps between tokens from their histogram, s (to 0.5 %)."""
    total, passed = sum(gaps.values()), 0
    percentiles: list[float] = []
    times = [share * total for share in shares]
    for index in sorted(gaps):
        passed += gaps[index]
        while len(percentiles) < len(times) and passed >= times[len(percentiles)]:
            percentiles.append(exp((index + (0.5 if index >= 0 else -0.5)) / GAP_STEPS))
    return percentiles
