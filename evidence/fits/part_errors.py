"""Fit of the errors of a step's parts to measured steps: a random-effects model with heavy tails.

The logarithm of measured over predicted of run ``i`` of setup ``g`` (source, framework, device) is
``x_i a_g + e_i``: ``x_i`` are the run's exposures (``simulator.uncertainty.parts``), ``a_g`` the errors of
the setup's parts, with the variance of the calibrations plus a fitted one, ``e_i`` the residual of the run.
Setups are multivariate t with ``FREEDOM`` degrees of freedom, so that a few odd setups do not set the
variances of all. Maximum likelihood by expectation maximisation (Pinheiro, Liu and Wu 2001).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.uncertainty import EVIDENCE, PARTS, PartErrors
from simulator.uncertainty.parts import NINETY

FREEDOM = 3.0
ITERATIONS = 400
LEAST = 1e-5
"""Smallest variance of a part: 0.3 %."""
NINE_IN_TEN = 0.9
ENOUGH = 10
"""Sources of which one may lie outside a band of nine in ten."""


@dataclass
class PredictedRun:
    """A measured step and its prediction.

    ``error`` is predicted over measured, less 1; ``exposed`` the exposures, ``variances`` those of parts
    that calibrations state, both of shape (parts,). ``evidence`` is what other sources measured near it;
    ``new`` says that nothing was tuned to its source; ``question`` and ``plan`` identify setting and plan.
    """

    source: str
    error: float
    exposed: np.ndarray
    variances: np.ndarray
    framework: str = ""
    device: str = ""
    generation: str = ""
    vendor: str = ""
    experts: bool = False
    evidence: str = EVIDENCE[0]
    new: bool = False
    question: str = ""
    plan: str = ""

    @property
    def residual(self) -> float:
        """Logarithm of measured over predicted."""
        return -float(np.log1p(self.error))

    @property
    def setup(self) -> tuple[str, str, str]:
        """Runs that share their errors of parts."""
        return self.source, self.framework, self.device


@dataclass
class Variances:
    """Fitted variance of each part, shape (parts,), and of the residual."""

    parts: np.ndarray
    residual: float

    def left(self, run: PredictedRun) -> float:
        """Variance of a run's error beyond what calibrations state."""
        return float(run.exposed**2 @ self.parts + self.residual)

    def width(self, run: PredictedRun, scale: float) -> float:
        """Half-width of a run's band, as ``simulator.uncertainty.band`` has it."""
        return float(np.sqrt(scale**2 * self.left(run) + NINETY**2 * run.exposed**2 @ run.variances))

    def pair_width(self, first: PredictedRun, other: PredictedRun, scale: float) -> float:
        """Half-width of the band of the ratio of two runs of one question."""
        stated, left = self._pair(first, other)
        return float(np.sqrt(scale**2 * left + stated))

    def scale_of(self, run: PredictedRun) -> float:
        """The scale at which a run's error is at the edge of its band."""
        stated = float(NINETY**2 * run.exposed**2 @ run.variances)
        return float(np.sqrt(_beyond(run.error, stated) / self.left(run)))

    def pair_scale(self, first: PredictedRun, other: PredictedRun, error: float) -> float:
        """The scale at which the error of a ratio is at the edge of its band."""
        stated, left = self._pair(first, other)
        return float(np.sqrt(_beyond(error, stated) / left))

    def _pair(self, first: PredictedRun, other: PredictedRun) -> tuple[float, float]:
        apart = first.exposed - other.exposed
        left = float(apart**2 @ self.parts) + 2 * self.residual
        return float(NINETY**2 * apart**2 @ first.variances), left


def _beyond(error: float, stated: float) -> float:
    """What of a squared error is beyond the band that calibrations state."""
    return max(error**2 - stated, 0.0)


def weighted_quantile(
    values: Sequence[float],
    sources: Sequence[str],
    share: float,
    power: float = 1.0,
    votes: Mapping[str, float] | None = None,
) -> float:
    """Quantile in which each source weighs the same, or its number of values to 1 less ``power``.

    Args:
        values: to order.
        sources: of the values, as many.
        share: of the weights that lie at or below the quantile.
        power: see above.
        votes: weight of a source, where not 1.
    """
    counts = Counter(sources)
    weights = np.array([(votes[source] if votes else 1) * counts[source] ** -power for source in sources])
    order = np.argsort(values)
    reached = np.cumsum(weights[order]) / weights.sum()
    return float(np.asarray(values)[order][np.searchsorted(reached, share - 1e-9)])


def fit_variances(
    runs: Sequence[PredictedRun], start: Variances | None = None, iterations: int = ITERATIONS
) -> Variances:
    """Variances of parts and of the residual, by expectation maximisation."""
    setups: dict[tuple[str, str, str], list[PredictedRun]] = {}
    for run in runs:
        setups.setdefault(run.setup, []).append(run)
    groups = list(setups.values())
    count = np.array([len(group) for group in groups], float)
    designs = [np.stack([run.exposed for run in group]) for group in groups]
    errors = [np.array([run.residual for run in group]) for group in groups]
    inner = np.stack([x.T @ x for x in designs])
    cross = np.stack([x.T @ y for x, y in zip(designs, errors, strict=True)])
    squares = np.array([y @ y for y in errors])
    mean_errors = np.stack([np.mean([run.variances for run in group], axis=0) for group in groups])
    parts = np.full(len(PARTS), 0.02) if start is None else start.parts.copy()
    residual = 0.005 if start is None else start.residual
    for _ in range(iterations):
        prior = np.maximum(parts + mean_errors, LEAST)
        posterior = np.linalg.inv(inner / residual + np.eye(len(PARTS)) / prior[:, np.newaxis, :])
        mean = np.einsum("gij,gj->gi", posterior, cross) / residual
        distance = (squares - np.einsum("gi,gi->g", mean, cross)) / residual
        weight = (FREEDOM + count) / (FREEDOM + distance)
        share = parts / prior
        diagonal = np.einsum("gii->gi", posterior)
        second = weight[:, np.newaxis] * (share * mean) ** 2 + share**2 * diagonal + share * mean_errors
        left = squares - 2 * np.einsum("gi,gi->g", mean, cross)
        left = left + np.einsum("gi,gij,gj->g", mean, inner, mean)
        spare = np.einsum("gij,gji->g", posterior, inner)
        # A setup of many runs counts by the square root of their number.
        parts = np.maximum(second.mean(axis=0), LEAST)
        residual = float(((weight * left + spare) / np.sqrt(count)).sum() / np.sqrt(count).sum())
    return Variances(parts, residual)


def evidence_scale(runs: Sequence[PredictedRun], variances: Variances) -> dict[str, float]:
    """Half-width of the 90 % band over the standard deviation, never less with less evidence.

    Fewer than ``ENOUGH`` sources are joined by those with more evidence, as ``ENOUGH`` votes in all: of two
    sources alone the tenth that may lie outside is none.
    """
    scale, least = {}, 0.0
    for number, name in enumerate(EVIDENCE):
        same = [run for run in runs if run.evidence == name]
        if same:
            nearer = [run for run in runs if run.evidence in EVIDENCE[:number]]
            names, others = {run.source for run in same}, {run.source for run in nearer}
            lent = max(ENOUGH - len(names), 0) / max(len(others), 1)
            votes = {f"lent {source}": lent for source in others} | dict.fromkeys(names, 1.0)
            sources = [run.source for run in same] + [f"lent {run.source}" for run in nearer]
            sizes = [variances.scale_of(run) for run in [*same, *nearer]]
            least = max(least, weighted_quantile(sizes, sources, NINE_IN_TEN, votes=votes))
        scale[name] = round(least, 2)
    return scale


def pairs(runs: Sequence[PredictedRun]) -> list[tuple[PredictedRun, PredictedRun, float]]:
    """Pairs of plans of one question and source: both runs, and the error of the log of their ratio.

    A plan that was measured more than once counts once, with the mean of its logarithms.
    """
    questions: dict[tuple[str, str], dict[str, list[PredictedRun]]] = {}
    for run in runs:
        questions.setdefault((run.source, run.question), {}).setdefault(run.plan, []).append(run)
    gaps = []
    for plans in questions.values():
        points = [(same[0], float(np.mean([run.residual for run in same]))) for same in plans.values()]
        gaps += [
            (first, other, error - further)
            for number, (first, error) in enumerate(points)
            for other, further in points[:number]
        ]
    return gaps


def ratio_scale(runs: Sequence[PredictedRun], variances: Variances) -> float:
    """Half-width of the 90 % band of a ratio over its standard deviation."""
    gaps = pairs(runs)
    if not gaps:
        return NINETY
    sizes = [variances.pair_scale(first, other, error) for first, other, error in gaps]
    sources = [first.source for first, _, _ in gaps]
    # Half of the pairs are of three sources; other sources have few pairs.
    return round(weighted_quantile(sizes, sources, NINE_IN_TEN, power=0.5), 2)


def fitted(runs: Sequence[PredictedRun], start: Variances | None = None) -> tuple[PartErrors, Variances]:
    """All errors of parts; scales by evidence from sources that nothing was tuned to."""
    variances = fit_variances(runs, start, ITERATIONS if start is None else ITERATIONS // 10)
    judged = [run for run in runs if run.new] or list(runs)
    spread = dict(zip(PARTS, np.sqrt(variances.parts).round(4).tolist(), strict=True))
    errors = PartErrors.model_validate(
        {
            "spread": spread,
            "residual": round(float(np.sqrt(variances.residual)), 4),
            "scale": evidence_scale(judged, variances),
            "ratio_scale": ratio_scale(runs, variances),
        }
    )
    return errors, variances
