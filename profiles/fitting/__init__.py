"""Fits of the functional forms that `hwmodels` owns, to points measured here or published elsewhere."""

from profiles.fitting.calibrate import Fit, calibrate
from profiles.fitting.write import write_calibration

__all__ = ["Fit", "calibrate", "write_calibration"]
