"""The posterior of a linear model with normal priors and errors of t."""

from __future__ import annotations

import numpy as np

from core.records import record

FREEDOM = 3.0
"""Degrees of freedom of the errors of runs, as of setups in `benchmarks.part_errors`."""
REWEIGHTED = 8


@record()
class Posterior:
    """Mean and covariance of factors, shapes (factors,) and (factors, factors)."""

    mean: np.ndarray
    covariance: np.ndarray


def posterior(
    exposed: np.ndarray, errors: np.ndarray, prior: np.ndarray, spread: np.ndarray, noise: np.ndarray
) -> Posterior:
    """Of factors, given what each run says of them; an odd run counts less.

    Args:
        exposed: of each run to each factor, shape (runs, factors).
        errors: of the runs, shape (runs,).
        prior: covariance of the factors.
        spread: standard deviation of a run's own error, by which a run is odd, shape (runs,).
        noise: its variance in the fit, shape (runs,).
    """
    weight, mean = np.ones(len(errors)), np.zeros(len(prior))
    gain = np.zeros((len(prior), len(errors)))
    for _ in range(REWEIGHTED):
        together = exposed @ prior @ exposed.T + np.diag(noise / weight)
        gain = prior @ exposed.T @ np.linalg.inv(together)
        mean = gain @ errors
        weight = (FREEDOM + 1) / (FREEDOM + ((errors - exposed @ mean) / spread) ** 2)
    return Posterior(mean, prior - gain @ exposed @ prior)
