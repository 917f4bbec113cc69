"""Uncertainty of predicted memory peaks."""

from __future__ import annotations

from math import erf, sqrt
from statistics import NormalDist

import numpy as np

from simulator.frameworks import Framework
from simulator.uncertainty.errors import PeakErrors, model_errors


def peak_errors(release: Framework) -> PeakErrors:
    """Errors of the peaks of a release: wider where it stands for several trainers."""
    errors = model_errors().memory
    return errors.shared if release.memory.shared else errors.own


def chance_to_fit(peak_bytes: np.ndarray, capacity_bytes: float, release: Framework) -> np.ndarray:
    """Probability that a measured peak stays within a capacity; in the shape of ``peak_bytes``."""
    errors = peak_errors(release)
    distance = (np.log(capacity_bytes / np.asarray(peak_bytes, float)) - errors.bias) / errors.spread
    return np.vectorize(lambda x: 0.5 * (1 + erf(x / sqrt(2))), otypes=[float])(distance)


def default_headroom(release: Framework) -> float:
    """Share of a device to leave free so that a plan fits with the required chance."""
    errors, required = peak_errors(release), model_errors().memory.required_chance
    return 1 - float(np.exp(-errors.bias - NormalDist().inv_cdf(required) * errors.spread))


def memory_band(release: Framework) -> tuple[float, float]:
    """Measured over predicted peak memory, 5th and 95th percentile."""
    errors = peak_errors(release)
    wide = 1.645 * errors.spread
    return float(np.exp(errors.bias - wide)), float(np.exp(errors.bias + wide))
