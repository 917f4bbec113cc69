"""Kernel times: one kernel class per file, fitted constants in `hwmodels/calibrations`."""

from hwmodels.kernels.calibration import Calibration, calibrations
from hwmodels.kernels.model import KernelModel

__all__ = ["Calibration", "KernelModel", "calibrations"]
