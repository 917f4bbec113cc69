"""Uncertainty of predicted memory peaks."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from simulator.setting import Setting
from simulator.uncertainty.errors import PeakErrors, model_errors


def chance_within(distance: ArrayLike) -> np.ndarray:
    """Probability of an error up to ``distance``, in units of its scale: Student's t, 2 degrees of freedom.

    Some sources are within 2 %, others 30 % off: a mixture of scales, whose tails no normal distribution has.
    With each source left out, gaps of ten bins are 4 %, where a normal distribution leaves 7 %
    (``benchmarks.memory_chances``).
    """
    distance = np.asarray(distance, float)
    return 0.5 + distance / (2 * np.sqrt(2 + distance**2))


def distance_of(chance: ArrayLike) -> np.ndarray:
    """The error that has a probability (``chance_within``), in units of its scale."""
    chance = np.asarray(chance, float)
    return (2 * chance - 1) / np.sqrt(2 * chance * (1 - chance))


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
    return chance_within(distance)


def default_headroom(setting: Setting) -> float:
    """Share of a device to leave free so that a plan fits with the required chance."""
    errors, required = peak_errors(setting), model_errors().memory.required_chance
    return 1 - float(np.exp(-errors.bias - distance_of(required) * errors.spread))


def memory_band(setting: Setting) -> tuple[float, float]:
    """Measured over predicted peak memory, 5th and 95th percentile."""
    errors = peak_errors(setting)
    wide = distance_of(0.95) * errors.spread
    return float(np.exp(errors.bias - wide)), float(np.exp(errors.bias + wide))
