"""Days, dollars and energy of a run with their band: the error of the step, and the spread of faults."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.runs import PlannedRun

DAY = 86400.0
MILLION = 1e6


@dataclass(frozen=True)
class Band:
    """A figure with a band.

    Attributes:
        middle, low, high: in the figure's unit; low and high end the band.
    """

    middle: float
    low: float
    high: float

    def words(self, unit: str) -> str:
        """The figure as it is known: ``24 d (20 to 29)``."""
        if not math.isfinite(self.middle):
            return "never"
        figure = f"{self.middle_words()} {unit}"
        return f"{figure} ({self.ends()})" if self.ends() else figure

    def money(self) -> str:
        """Dollars as they are known, from a million on in millions: ``160 M$ (70 to 250)``."""
        if not MILLION <= self.middle < math.inf:
            return self.words("$")
        return Band(self.middle / MILLION, self.low / MILLION, self.high / MILLION).words("M$")

    def ends(self) -> str:
        """The band: ``20 to 29``; empty where it is narrower than the figure is printed."""
        low, high = (_rounded(value, self._step) for value in (self.low, self.high))
        return "" if low == high else f"{low} to {high}"

    def middle_words(self) -> str:
        """The figure alone, rounded as it is known."""
        return _rounded(self.middle, self._step)

    @property
    def _step(self) -> float:
        """Power of ten to which the figure is known: a digit of half its band, two below 2.5; 0 if exact."""
        half = (self.high - self.low) / 2.0
        return 10.0 ** math.floor(math.log10(half / 2.5)) if half > 0 and math.isfinite(half) else 0.0


def run_half_width(run: PlannedRun) -> float:
    """Half-width of the 90 % band of a run's step, as a share; 0 where it is not known."""
    confidence = run.prediction.confidence
    return 0.0 if confidence is None else float(confidence.half_width[0])


def days_band(run: PlannedRun) -> Band:
    """Days of a run: the error of its step and the spread of its replications, which are independent."""
    outcome, half = run.outcome, run_half_width(run)
    mean = outcome.mean_s
    if not math.isfinite(mean):
        return Band(math.inf, math.inf, math.inf)
    late = outcome.quantile(0.95)
    early = 1.0 - outcome.quantile(0.05) / mean
    below = math.hypot(half, early)
    above = math.hypot(half, late / mean - 1.0) if math.isfinite(late) else math.inf
    return Band(mean / DAY, mean * max(1.0 - below, 0.0) / DAY, mean * (1.0 + above) / DAY)


def band_of(report: Mapping[str, Any]) -> Band:
    """Days of a run, from what ``simulate --json`` says of it."""
    mean, ends = report["finish_days"]["mean"], report["finish_band_days"]
    if mean is None:
        return Band(math.inf, math.inf, math.inf)
    low, high = (math.inf if end is None else end for end in ends)
    return Band(mean, low, high)


def in_proportion(value: float, days: Band) -> Band:
    """A figure that grows with the days of a run: dollars or energy."""
    if not math.isfinite(days.middle) or not days.middle:
        return Band(value, value, value)
    return Band(value, value * days.low / days.middle, value * days.high / days.middle)


def around(value: float, half: float | None) -> Band:
    """A figure with a relative half-width; without one no band."""
    half = half or 0.0
    return Band(value, value * (1.0 - half), value * (1.0 + half))


def _rounded(value: float, step: float) -> str:
    """A number to a power of ten; in three digits where the step is 0."""
    if not math.isfinite(value):
        return "never"
    if not step:
        return f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
    digits = max(-math.floor(math.log10(step) + 1e-9), 0)
    return f"{round(value / step) * step:,.{digits}f}"
