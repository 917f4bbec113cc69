"""Overlap inside a step: what runs beside what, and how much of it is hidden."""

from simulator.serving.overlaps.arrays import Overlaps
from simulator.serving.overlaps.base import Overlap
from simulator.serving.overlaps.steps import OverlapSteps, make_overlap, overlaps

__all__ = ["Overlap", "OverlapSteps", "Overlaps", "make_overlap", "overlaps"]
