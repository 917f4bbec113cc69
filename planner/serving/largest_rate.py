"""The largest rate of a deployment on the event engine: steps from the steady state's rate, then halves."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from planner.serving.engine_run import Trial, trial_run
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
        follow: whether a step downwards goes to what the failed run served, if that is two steps away.
        with_warm_up: whether the targets must hold over a whole run too; see `trial_run`.
    """

    factor: float
    close: float
    runs: int
    short: int = 0
    follow: bool = False
    with_warm_up: bool = False


@dataclass(frozen=True)
class Bracket:
    """Interval of the largest rate, requests a second: the first holds and the second does not.

    Attributes:
        low, high: its ends; zeros where no rate holds.
        run: at ``low``.
    """

    low: float
    high: float
    run: Trial | None


def bracket(setting: ServingSetting, expected: float, natural: float | None, steps: Steps) -> Bracket:
    """Interval of the largest rate.

    Args:
        setting: the run.
        expected: first rate, requests a second.
        natural: rate of a trace's own times.
        steps: to the trial rates.
    """
    low, high, factor, carried = 0.0, inf, steps.factor, None
    rate = max(expected, 1e-3)
    for number in range(steps.runs):
        run = trial_run(setting, rate, natural, steps.with_warm_up)
        if run.holds:
            low, carried = rate, run
        else:
            high = rate
        if low and high < inf:
            if high - low <= steps.close * high:
                break
            rate = 0.5 * (low + high)
        elif low:
            rate, factor = rate * factor, factor**2
        else:
            # What a failed run served saves steps; beside the next one it only widens the interval.
            further = steps.follow and run.served < rate / factor**2
            rate = run.served if further else rate / factor
            factor = factor if number < steps.short else factor**2
            if rate < LEAST_TRIED:
                break
    return Bracket(low, high if high < inf else low, carried) if low else Bracket(0.0, 0.0, None)
