"""How far a predicted step can be trusted: the calibration's errors, carried through the breakdown.

A kernel class is off by what its calibration was off by on shapes that the fit did not see. Classes are
fitted apart, so their errors add in quadrature, each weighted by its share of the step. Two plans of one
setting share their calibration: what they spend alike is wrong alike, and only the difference counts.

The band covers kernels and links. It knows nothing of what the model leaves out (another cuBLAS, a busy
network, a slow data loader); ``meshwright validate`` prints the error on whole steps.
"""

from __future__ import annotations

import numpy as np

from hwmodels.kernels.memory_bound import KINDS
from simulator.costs.setting import Setting
from simulator.training import Step

NINETY_OVER_MEDIAN = 2.44
"""90th percentile over median of the size of a normal error (1.645 / 0.674)."""

LINK_ERROR = 0.15
"""90th percentile of collectives inside a node, as the calibrations of NVLink state it."""

NO_MEASUREMENT = 0.2
"""Median error taken for fabrics without a published row to check on."""

SHAPES = {"gemm": 12, "recompute": 4, "attention": 2}
"""Distinct kernels of a class in a layer; what differs from shape to shape averages out over them."""


def part_errors(setting: Setting) -> dict[str, float]:
    """90th percentile of the relative error of each part of a step; parts not named are taken as exact."""
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
        # Steps price experts as dense products, but nobody has measured those; serving's grouped ones are.
        errors["grouped_gemm"] = kernels.error("grouped_gemm", setting.linear_dtype)[1]
    return errors | dict.fromkeys(("expert", "pipeline", "gradients", "parameters"), across)


def band(setting: Setting, step: Step) -> np.ndarray:
    """Relative half-width that holds nine of ten steps, as far as calibration is to blame; shape (plans,)."""
    squares = sum((error * step.share(part)) ** 2 for part, error in _present(setting, step).items())
    return np.sqrt(squares)


def tells_apart(setting: Setting, step: Step, first: int, second: int) -> bool:
    """Whether two plans differ by more than the calibration's error on what they do differently."""
    squares = 0.0
    for part, error in _present(setting, step).items():
        one, other = step.seconds[part][first], step.seconds[part][second]
        scatter = error / np.sqrt(SHAPES.get(part, 1)) * max(one, other) / NINETY_OVER_MEDIAN
        squares += (error * (one - other)) ** 2 + (scatter**2 if one != other else 0.0)
    return abs(float(step.time[first] - step.time[second])) > float(np.sqrt(squares))


def _present(setting: Setting, step: Step) -> dict[str, float]:
    return {part: error for part, error in part_errors(setting).items() if part in step.seconds}
