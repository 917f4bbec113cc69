"""Uncertainty of predicted memory peaks."""

from __future__ import annotations

from math import erf, sqrt
from statistics import NormalDist

import numpy as np

from simulator.setting import Setting
from simulator.uncertainty.errors import PeakErrors, model_errors


def peak_errors(setting: Setting) -> PeakErrors:
    """Errors of the peaks of a setting: wider with experts and for shared releases."""
    errors = model_errors().memory
    if setting.framework.memory.shared:
        return errors.shared
    return errors.dense if setting.model.moe is None else errors.experts


def chance_to_fit(peak_bytes: np.ndarray, capacity_bytes: float, setting: Setting) -> np.ndarray:
    """Probability that a measured peak stays within a capacity; in the shape of ``peak_bytes``."""
    errors = peak_errors(setting)
    distance = (np.log(capacity_bytes / np.asarray(peak_bytes, float)) - errors.bias) / errors.spread
    return np.vectorize(lambda x: 0.5 * (1 + erf(x / sqrt(2))), otypes=[float])(distance)


def default_headroom(setting: Setting) -> float:
    """Share of a device to leave free so that a plan fits with the required chance."""
    errors, required = peak_errors(setting), model_errors().memory.required_chance
    return 1 - float(np.exp(-errors.bias - NormalDist().inv_cdf(required) * errors.spread))


def memory_band(setting: Setting) -> tuple[float, float]:
    """Measured over predicted peak memory, 5th and 95th percentile."""
    errors = peak_errors(setting)
    wide = 1.645 * errors.spread
    return float(np.exp(errors.bias - wide)), float(np.exp(errors.bias + wide))
