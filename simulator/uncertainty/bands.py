"""Bands of a step and of the ratio of two plans' steps: errors of parts, weighted by exposure.

With exposures ``x``, errors of parts of covariance ``D`` (diagonal) and a residual ``r`` of each plan, a
step has the variance ``x D x + r r``, and the ratio of two plans ``(x - y) D (x - y) + 2 r r``: errors of
what both plans share cancel. ``D`` is what measured steps left of each part, wider the less was measured
near, and what calibrations say of their own kernels and links, which is wide already where nobody measured.
"""

from __future__ import annotations

import numpy as np

from simulator.setting import Setting
from simulator.training import Step
from simulator.uncertainty.errors import evidence_of, model_errors
from simulator.uncertainty.parts import NINETY, PARTS, calibration_errors, exposure

MEDIAN = 0.674
"""Half of normal errors are within so many standard deviations."""


def part_variance(setting: Setting, scale: float | None = None) -> np.ndarray:
    """Variance of the relative error of each part, shape (parts,).

    Args:
        setting: of the step.
        scale: how much wider than measured steps left them its errors are; by default by the evidence near.
    """
    fitted, calibrated = model_errors().parts.spread, calibration_errors(setting)
    scale = evidence_scale(setting) if scale is None else scale
    return np.array([(scale * fitted[name]) ** 2 + calibrated[name] ** 2 for name in PARTS])


def part_covariance(setting: Setting, scale: float | None = None) -> np.ndarray:
    """Covariance of the relative errors of parts in a band, shape (parts, parts).

    Errors of published steps at the width of the evidence; what measured steps left of them at a site.
    """
    site = setting.site
    if site is not None and site.parts == list(PARTS):
        return np.array(site.covariance)
    return np.diag(part_variance(setting, scale))


def sources_of_width(setting: Setting) -> int:
    """Sources, none tuned to, that the width of a band rests on; 0 where a site's own runs set it."""
    site = setting.site
    if site is not None and site.parts == list(PARTS):
        return 0
    return model_errors().sources.get(evidence_of(setting, model_errors().measured), 0)


def evidence_scale(setting: Setting) -> float:
    """Errors of parts near a setting over those of measured steps, by what was measured near it."""
    return model_errors().parts.scale[evidence_of(setting, model_errors().measured)] / NINETY


def _residual(setting: Setting, scale: float | None = None) -> float:
    """Error of a plan that no part explains, as a standard deviation."""
    site = setting.site
    if site is not None and site.residual is not None:
        return site.residual
    return model_errors().parts.residual * (evidence_scale(setting) if scale is None else scale)


def calibration_band(setting: Setting, step: Step) -> np.ndarray:
    """Relative half-width due to the calibrations of kernels and links alone; shape (plans,)."""
    errors = np.array([calibration_errors(setting)[name] for name in PARTS])
    return NINETY * np.sqrt(exposure(step) ** 2 @ errors**2)


def band(setting: Setting, step: Step, exposed: np.ndarray | None = None) -> np.ndarray:
    """Relative half-width of the 90 % band; shape (plans,). ``exposed``: the step's `exposure`, if known."""
    exposed = exposure(step) if exposed is None else exposed
    variance = np.einsum("np,pq,nq->n", exposed, part_covariance(setting), exposed)
    return NINETY * np.sqrt(np.maximum(variance, 0.0) + _residual(setting) ** 2)


def covariance(setting: Setting, step: Step, exposed: np.ndarray | None = None) -> np.ndarray:
    """Covariance of the relative errors of plans of one question, as it bears on their ratios.

    Errors that all plans share cancel in a ratio; the residual of a plan does not. Shape (plans, plans).
    """
    scale = None if setting.site else model_errors().parts.ratio_scale / NINETY
    exposed = exposure(step) if exposed is None else exposed
    apart = _residual(setting, scale) ** 2 * np.eye(len(exposed))
    return exposed @ part_covariance(setting, scale) @ exposed.T + apart


def ratio_spread(covariances: np.ndarray, first: int = 0) -> np.ndarray:
    """Standard deviation of each plan's step over that of one plan; shape (plans,)."""
    variance = np.diag(covariances)
    return np.sqrt(np.maximum(variance + variance[first] - 2 * covariances[first], 0.0))


def ratio_band(setting: Setting, step: Step, first: int = 0) -> np.ndarray:
    """Relative half-width of the 90 % band of each plan's step over that of one plan; shape (plans,)."""
    return NINETY * ratio_spread(covariance(setting, step), first)


def distinguishable(setting: Setting, step: Step) -> np.ndarray:
    """Mask of steps that differ from the fastest by more than the median error of the ratio."""
    fastest = int(np.argmin(step.time))
    gap = np.abs(np.log(step.time / step.time[fastest]))
    return gap > MEDIAN * ratio_spread(covariance(setting, step), fastest)


def even_footing(best_s: float, times_s: np.ndarray) -> np.ndarray:
    """Mask of step times too close to the best for their order to be meaningful."""
    return times_s <= best_s * (1 + model_errors().difference.even)
