"""What is known about each of some plans: bands, the probability to be the fastest, evidence.

The logarithms of the steps are jointly normal (``simulator.uncertainty.covariance``): errors of what plans
share cancel. Probabilities are shares of ``DRAWS`` draws with a fixed seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np

from core.records import record
from planner.training.measured_runs import PlanEvidence, RunEvidence
from planner.training.metrics import utilisation
from simulator.plan import Plans
from simulator.setting import Setting
from simulator.training import Step, predict
from simulator.uncertainty import band, covariance, model_errors, sources_of_width
from simulator.uncertainty.bands import MEDIAN, ratio_spread
from simulator.uncertainty.parts import NINETY, exposure

DRAWS = 4096
SEED = 2026


@record()
class Confidence:
    """What is known about plans, one row a plan.

    Attributes:
        half_width: of the 90 % band of the step, a share; wider where measured runs do not bear a plan out.
        ratio_half_width: of the 90 % band of the step over that of the fastest plan.
        differs: whether the predicted gap to the fastest exceeds the median error of that ratio.
        chance_best: probability to be the fastest of these plans.
        expected_loss: expected step time over that of the fastest of these plans, less 1.
        evidence: measured runs of each plan's mechanisms.
        sources: sources that the width of the bands rests on; 0 where a site's own runs set it.
    """

    half_width: np.ndarray
    ratio_half_width: np.ndarray
    differs: np.ndarray
    chance_best: np.ndarray
    expected_loss: np.ndarray
    evidence: Sequence[PlanEvidence]
    sources: int = 0


def draw_times(times_s: np.ndarray, covariances: np.ndarray) -> np.ndarray:
    """Draws of the true steps of plans, s, shape (draws, plans); the same in every call.

    Args:
        times_s: predicted steps, shape (plans,).
        covariances: of their relative errors, shape (plans, plans).
    """
    values, vectors = np.linalg.eigh(covariances)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    return times_s * np.exp(_normal(DRAWS, len(times_s)) @ root.T)


def _normal(rows: int, columns: int) -> np.ndarray:
    """Draws of a standard normal (Box and Muller 1958); numpy's generators cost 20 ms of import."""
    words = np.frombuffer(Random(SEED).randbytes(16 * rows * columns), dtype="<u8")
    radius, angle = (words.reshape(2, rows, columns) + 0.5) / 2.0**64
    return np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * angle)


def chances(times_s: np.ndarray, covariances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Probability of each plan to be the fastest, and its expected loss; both of shape (plans,)."""
    drawn = draw_times(times_s, covariances)
    fastest = drawn.min(axis=1)
    best = np.bincount(drawn.argmin(axis=1), minlength=len(times_s)) / len(drawn)
    return best, (drawn / fastest[:, np.newaxis]).mean(axis=0) - 1


def confidence(setting: Setting, plans: Plans, step: Step) -> Confidence:
    """What is known about plans whose step has a breakdown."""
    exposed = exposure(step)
    together = covariance(setting, step, exposed)
    fastest = int(np.argmin(step.time))
    spread = ratio_spread(together, fastest)
    best, loss = chances(step.time, together)
    runs = RunEvidence(setting)
    evidence = tuple(
        runs.of(plan, utilisation(setting, float(seconds), causal=True))
        for plan, seconds in zip(plans, step.time, strict=True)
    )
    # First choices that measured runs do not bear out are further off the best measured step than others.
    # Errors of the parts are those of decoders.
    doubted = not setting.model.decoder_only
    beyond = [(each.marked or doubted) and setting.site is None for each in evidence]
    return Confidence(
        np.where(beyond, model_errors().unproven, 1.0) * band(setting, step, exposed),
        NINETY * spread,
        np.log(step.time / step.time[fastest]) > MEDIAN * spread,
        best,
        loss,
        evidence,
        sources_of_width(setting),
    )


def within_band(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether each plan's gap to the first lies inside the 90 % band of their ratio, shape (plans,)."""
    step = predict(setting, plans)
    spread = ratio_spread(covariance(setting, step, exposure(step)), 0)
    return np.log(step.time / step.time[0]) <= NINETY * spread


def worth_measuring(
    times_s: np.ndarray, covariances: np.ndarray, count: int
) -> tuple[list[int], list[float]]:
    """The plans whose measured steps would improve the choice most, one after the other.

    After some plans are measured, the best of them is taken, or the plan that is expected to be the fastest
    of the others (the value of information of Raiffa and Schlaifer 1961; chosen greedily).

    Args:
        times_s: predicted steps, s, shape (plans,).
        covariances: of their relative errors, shape (plans, plans).
        count: number of plans to measure.

    Returns:
        Indices of the plans, and what measuring each one gains beyond those before it, as a share of the
        fastest expected step.
    """
    drawn = draw_times(times_s, covariances)
    expected = drawn.mean(axis=0)
    trials: list[int] = []
    gains: list[float] = []
    value, now = float(expected.min()), np.full(len(drawn), np.inf)
    for _ in range(min(count, len(times_s))):
        open_to = [index for index in range(len(times_s)) if index not in trials]
        after = [_after(drawn, expected, trials, index, now) for index in open_to]
        best = min(zip(after, open_to, strict=True))
        gains.append((value - best[0]) / float(expected.min()))
        value = best[0]
        trials.append(best[1])
        now = np.minimum(now, drawn[:, best[1]])
    return trials, gains


def _after(drawn: np.ndarray, expected: np.ndarray, trials: list[int], index: int, now: np.ndarray) -> float:
    """Expected step that is taken once one more plan is measured; ``now``: the best measured of each draw."""
    others = np.delete(expected, [*trials, index])
    rest = float(others.min()) if len(others) else np.inf
    return float(np.minimum(np.minimum(now, drawn[:, index]), rest).mean())
