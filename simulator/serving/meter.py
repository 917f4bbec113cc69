"""What the steps of one replica did, added up as they run: constant memory however long the run."""

from __future__ import annotations

from collections import defaultdict
from math import exp, log
from typing import NamedTuple

from simulator.serving.batcher import Step
from simulator.serving.step_times import StepTimes

GAP_STEPS = 200.0
"""Bins of the histogram of token gaps per factor e: 0.5 % each."""
MOST_BINS = 256
"""Bins of a series over time; when they are full, two become one."""
KINDS = ("prefill", "mixed", "decode")
PREFILL, MIXED, DECODE = range(len(KINDS))
POWER_EVERY = 32
"""Steps between two looks at the power model."""


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


class Series:
    """Sums over time in bins that widen as the run grows."""

    __slots__ = ("bins", "width_s")

    def __init__(self) -> None:
        self.width_s = 0.25
        self.bins: list[list[float]] = []
        """Of each bin: busy seconds, and running, waiting, blocks times seconds, output tokens."""

    def add(self, start: float, seconds: float, running: int, waiting: int, blocks: int, tokens: int) -> None:
        """Add a busy time, spread over the bins that it crosses."""
        first, last = int(start / self.width_s), int((start + seconds) / self.width_s)
        while last >= MOST_BINS:
            self._widen()
            first, last = int(start / self.width_s), int((start + seconds) / self.width_s)
        bins = self.bins
        while len(bins) <= last:
            bins.append([0.0, 0.0, 0.0, 0.0, 0.0])
        if first == last:
            one = bins[first]
            one[0] += seconds
            one[1] += seconds * running
            one[2] += seconds * waiting
            one[3] += seconds * blocks
            one[4] += tokens
            return
        for index in range(first, last + 1):
            low, high = index * self.width_s, (index + 1) * self.width_s
            inside = min(high, start + seconds) - max(low, start)
            one = bins[index]
            one[0] += inside
            one[1] += inside * running
            one[2] += inside * waiting
            one[3] += inside * blocks
            one[4] += tokens * inside / seconds

    def _widen(self) -> None:
        bins = self.bins
        if len(bins) % 2:
            bins.append([0.0] * 5)
        self.bins = [
            [a + b for a, b in zip(*pair, strict=True)] for pair in zip(bins[::2], bins[1::2], strict=True)
        ]
        self.width_s *= 2


class Meter:
    """Sums of one replica.

    Args:
        steps: for power.
        kv_total: blocks of the replica.
        slices: where each step goes for a trace; None keeps none.
    """

    def __init__(self, steps: StepTimes, kv_total: int, slices: list[Slice] | None = None) -> None:
        self.model, self.kv_total, self.slices = steps, kv_total, slices
        self.series = Series()
        self._seconds = [0.0, 0.0, 0.0]
        self._steps = [0, 0, 0]
        self.prompt_tokens = 0
        self.output_tokens = 0
        self.decode_slots = 0
        """Sum over decode steps of sequences."""
        self.kv_read = 0.0
        """Sum over steps of the KV tokens that decodes read."""
        self.joules = 0.0
        self.gaps: dict[int, int] = defaultdict(int)
        self._decoded_s = -1.0
        self._looks = 0
        self._watts = [-1.0, -1.0, -1.0]

    def add(
        self,
        step: Step,
        start: float,
        end: float,
        count: int,
        running: int,
        waiting: int,
        blocks: int,
        since: float | None = None,
    ) -> None:
        """Add a step, or a stretch of ``count`` decode steps.

        Args:
            step: the first of them.
            start, end: seconds.
            count: steps.
            running, waiting, blocks: sequences and KV blocks in use during them.
            since: when the decoding sequences had their last token; default: at the end of the last step that
                decoded.
        """
        seconds, decodes, chunks = end - start, step.decodes, step.chunks
        prompt = 0
        if chunks:
            kind = MIXED if decodes else PREFILL
            for tokens, _ in chunks:
                prompt += tokens
            self.prompt_tokens += prompt
        else:
            kind = DECODE
        self._seconds[kind] += seconds
        self._steps[kind] += count
        tokens = decodes * count + len(step.firsts)
        self.output_tokens += tokens
        if decodes:
            self.decode_slots += decodes * count
            self.kv_read += step.kv_tokens * count
            if since is None:
                since = self._decoded_s if self._decoded_s > 0.0 else start
            gap = (end - since) / count
            if gap > 0.0:
                self.gaps[int(log(gap) * GAP_STEPS)] += decodes * count
            self._decoded_s = end
        self._looks += 1
        if self._watts[kind] < 0.0 or self._looks % POWER_EVERY == 0:
            self._watts[kind] = self.model.watts(chunks, decodes, step.kv_tokens)
        self.joules += self._watts[kind] * seconds
        self.series.add(start, seconds, running, waiting, blocks, tokens)
        if self.slices is not None:
            self.slices.append(Slice(start, seconds, count, decodes, prompt, waiting, running, blocks))

    def idle(self) -> None:
        """Note that the replica has nothing to run."""
        self._decoded_s = -1.0

    @property
    def seconds(self) -> dict[str, float]:
        """Seconds by kind of step."""
        return dict(zip(KINDS, self._seconds, strict=True))

    @property
    def steps(self) -> dict[str, int]:
        """Steps by kind."""
        return dict(zip(KINDS, self._steps, strict=True))

    @property
    def busy_s(self) -> float:
        """Seconds in steps."""
        return sum(self._seconds)


def gap_percentiles(gaps: dict[int, int], shares: tuple[float, ...]) -> list[float]:
    """Percentiles of gaps between tokens from their histogram, s (to 0.5 %)."""
    total, found, passed = sum(gaps.values()), [], 0
    wanted = [share * total for share in shares]
    for index in sorted(gaps):
        passed += gaps[index]
        while len(found) < len(wanted) and passed >= wanted[len(found)]:
            found.append(exp((index + (0.5 if index >= 0 else -0.5)) / GAP_STEPS))
    return found
