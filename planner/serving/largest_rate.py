"""The largest rate of a deployment on the event engine: steps from the steady state's rate, then halves."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from planner.serving.engine_run import trial_run
from simulator.serving.setting import ServingSetting

LEAST_TRIED = 1e-5
"""Requests a second below which the targets are not tried: not even a lone request meets them."""


@dataclass(frozen=True)
class Steps:
    """How trial rates follow each other.

    Attributes:
        factor: from the steady state's rate to the second one.
        close: width of the interval, over its upper end, at which it is narrow enough.
        runs: maximum number of them.
        short: first steps downwards that keep the factor, which otherwise is squared at every step.
        follow: whether a step downwards goes to what the failed run served, if that is further.
    """

    factor: float
    close: float
    runs: int
    short: int = 0
    follow: bool = False


def bracket(
    setting: ServingSetting, expected: float, natural: float | None, steps: Steps
) -> tuple[float, float]:
    """Interval of the largest rate.

    Args:
        setting: the run.
        expected: first rate, requests a second.
        natural: rate of a trace's own times.
        steps: to the trial rates.

    Returns:
        Requests a second, of which the first holds and the second does not; zeros where no rate holds.
    """
    low, high, factor = 0.0, inf, steps.factor
    rate = max(expected, 1e-3)
    for number in range(steps.runs):
        run = trial_run(setting, rate, natural)
        if run.holds:
            low = rate
        else:
            high = rate
        if low and high < inf:
            if high - low <= steps.close * high:
                break
            rate = 0.5 * (low + high)
        elif low:
            rate, factor = rate * factor, factor**2
        else:
            rate = min(rate / factor, run.served if steps.follow else inf)
            factor = factor if number < steps.short else factor**2
            if rate < LEAST_TRIED:
                break
    return (low, high if high < inf else low) if low else (0.0, 0.0)
