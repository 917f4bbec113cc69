"""Uncertainty of predicted steps, of predicted memory peaks, and of the order of two plans.

The error of a step is a sum of errors of its parts (``parts``): kernels by class, collectives by level, host
time, overlap. They are fitted to published steps once, and scaled by what was measured near a setting.
``python -m benchmarks.bands`` fits them and prints how often bands hold.
"""

from simulator.uncertainty.bands import (
    band,
    calibration_band,
    covariance,
    distinguishable,
    even_footing,
    part_variance,
    ratio_band,
    ratio_spread,
    sources_of_width,
)
from simulator.uncertainty.errors import (
    ERRORS_FILE,
    EVIDENCE,
    Evidence,
    ModelErrors,
    PartErrors,
    PeakErrors,
    evidence_of,
    kind_of,
    model_errors,
    over_promised,
)
from simulator.uncertainty.groups import mixed_half_width
from simulator.uncertainty.memory import (
    chance_to_fit,
    chance_within,
    default_headroom,
    distance_of,
    memory_band,
    peak_errors,
)
from simulator.uncertainty.parts import PARTS, calibration_errors, exposure, has_parts

__all__ = [
    "ERRORS_FILE",
    "EVIDENCE",
    "PARTS",
    "Evidence",
    "ModelErrors",
    "PartErrors",
    "PeakErrors",
    "band",
    "calibration_band",
    "calibration_errors",
    "chance_to_fit",
    "chance_within",
    "covariance",
    "default_headroom",
    "distance_of",
    "distinguishable",
    "even_footing",
    "evidence_of",
    "exposure",
    "has_parts",
    "kind_of",
    "memory_band",
    "mixed_half_width",
    "model_errors",
    "over_promised",
    "part_variance",
    "peak_errors",
    "ratio_band",
    "ratio_spread",
    "sources_of_width",
]
