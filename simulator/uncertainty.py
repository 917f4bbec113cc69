"""Uncertainty of predicted steps, of predicted memory peaks, and of the order of two plans.

A step's band has three parts, added in quadrature: kernel errors on shapes outside the fit,
link errors, and model errors by kind of setting. Kernel classes are fitted
apart, so each is weighted by its share of the step. The model's error covers all else: libraries, clocks,
busy networks, host time. ``python -m benchmarks.bands`` fits it to published steps and prints how often
bands hold.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from math import erf, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Literal

import numpy as np
from pydantic import Field

from hwmodels.cache import read_shipped
from hwmodels.device import devices
from hwmodels.kernels.memory_bound import KINDS
from hwmodels.loading import Strict, build
from simulator.setting import Setting
from simulator.training import Step

ERRORS_FILE = Path(__file__).parent / "model_errors.yaml"

NINETY_OVER_MEDIAN = 2.44
"""90th percentile over median of the size of a normal error (1.645 / 0.674)."""

LINK_ERROR = 0.15
"""90th percentile of collectives inside a node, as the calibrations of NVLink state it."""

NO_MEASUREMENT = 0.2
"""Median error of fabrics without published rows."""


class MemoryErrors(Strict):
    """Measured over predicted peak memory: a lognormal distribution."""

    bias: float = Field(description="median of its logarithm")
    spread: float = Field(gt=0, description="standard deviation of its logarithm")
    required_chance: float = Field(gt=0, lt=1, description="least chance to fit of a recommended plan")


class DifferenceErrors(Strict):
    """Error of the ratio of two plans' step times."""

    median: float = Field(gt=0, description="median size of the error; plans closer than that may swap")
    even: float = Field(gt=0, description="predicted gap below which the order is right half of the time")


Evidence = Literal["framework and device", "device", "family", "none"]
"""What steps were measured near a setting: with its framework on its device, on its device or with its
framework on the device's family, on the family, or nowhere near."""

EVIDENCE: tuple[Evidence, ...] = ("framework and device", "device", "family", "none")


class ModelErrors(Strict):
    """Errors of whole steps and peaks, fitted to published runs."""

    source: str
    step: dict[str, float] = Field(
        description="90th percentile of the error beyond kernels and links, by kind"
    )
    evidence: dict[Evidence, float] = Field(description="the same, at least, by what was measured near")
    measured: dict[str, list[str]] = Field(description="devices with measured steps, by framework")
    memory: MemoryErrors
    difference: DifferenceErrors


@cache
def model_errors() -> ModelErrors:
    """The shipped errors."""
    return build(ModelErrors, read_shipped(ERRORS_FILE), str(ERRORS_FILE))


def kind_of(setting: Setting) -> str:
    """The kind of setting by which steps are judged: AMD devices, models with experts, or dense models."""
    if setting.cluster.device.vendor == "amd":
        return "amd"
    return "experts" if setting.model.moe else "dense"


def evidence_of(setting: Setting, measured: Mapping[str, Collection[str]]) -> Evidence:
    """What was measured near a setting.

    Args:
        setting: of the step.
        measured: devices with measured steps, by framework.
    """
    device, own = setting.cluster.device, measured.get(setting.framework.name, ())
    if device.name in own:
        return "framework and device"
    family = {name for name in devices.names() if devices.get(name).generation == device.generation}
    everywhere = {name for names in measured.values() for name in names}
    if device.name in everywhere or family & set(own):
        return "device"
    return "family" if family & everywhere else "none"


def step_error(setting: Setting) -> float:
    """The model's own 90th percentile of the error: that of the kind, and at least that of the evidence."""
    errors = model_errors()
    return max(errors.step[kind_of(setting)], errors.evidence[evidence_of(setting, errors.measured)])


def part_errors(setting: Setting) -> dict[str, float]:
    """90th percentile of the relative error of each part of a step; other parts are exact."""
    kernels = setting.kernels
    network = setting.cluster.network_error
    across = NINETY_OVER_MEDIAN * (NO_MEASUREMENT if network is None else max(network, 0.05))
    gemm = kernels.error("gemm", setting.linear_dtype)[1]
    errors = {
        "gemm": gemm,
        "recompute": gemm,
        "attention": kernels.error("attention", setting.core_dtype)[1],
        "tensor": LINK_ERROR,
        "context": LINK_ERROR,
    }
    errors |= {kind: kernels.error(kind)[1] for kind in KINDS}
    if setting.model.moe:
        # Steps price experts as dense products, which are unmeasured; grouped products of serving are
        # measured.
        errors["grouped_gemm"] = kernels.error("grouped_gemm", setting.linear_dtype)[1]
    return errors | dict.fromkeys(("expert", "pipeline", "gradients", "parameters"), across)


def calibration_band(setting: Setting, step: Step) -> np.ndarray:
    """Relative half-width due to kernels and links; shape (plans,)."""
    errors = {part: error for part, error in part_errors(setting).items() if part in step.seconds}
    return np.sqrt(sum((error * step.share(part)) ** 2 for part, error in errors.items()))


def band(setting: Setting, step: Step) -> np.ndarray:
    """Relative half-width of the 90 % band; shape (plans,)."""
    return np.hypot(calibration_band(setting, step), step_error(setting))


def distinguishable(first_s: float, second_s: float) -> bool:
    """Whether two step times differ by more than the median error of such a difference."""
    return abs(float(np.log(second_s / first_s))) > model_errors().difference.median


def even_footing(best_s: float, times_s: np.ndarray) -> np.ndarray:
    """Mask of step times too close to the best for their order to be meaningful."""
    return times_s <= best_s * (1 + model_errors().difference.even)


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
