"""Uncertainty of predicted memory peaks."""

from __future__ import annotations

from math import erf, sqrt
from statistics import NormalDist

import numpy as np

from simulator.uncertainty.errors import model_errors


def chance_to_fit(peak_bytes: np.ndarray, capacity_bytes: float) -> np.ndarray:
    """Probability that a measured peak stays within a capacity; in the shape of ``peak_bytes``."""
    errors = model_errors().memory
    distance = (np.log(capacity_bytes / np.asarray(peak_bytes, float)) - errors.bias) / errors.spread
    return np.vectorize(lambda x: 0.5 * (1 + erf(x / sqrt(2))), otypes=[float])(distance)


def default_headroom() -> float:
    """Share of a device to leave free so that a plan fits with the required chance."""
    errors = model_errors().memory
    return 1 - float(np.exp(-errors.bias - NormalDist().inv_cdf(errors.required_chance) * errors.spread))


def memory_band() -> tuple[float, float]:
    """Measured over predicted peak memory, 5th and 95th percentile."""
    errors = model_errors().memory
    wide = 1.645 * errors.spread
    return float(np.exp(errors.bias - wide)), float(np.exp(errors.bias + wide))
