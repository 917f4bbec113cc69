"""Overlap of kernels inside a step, as a pool states it."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from core.loading import Strict


class StepOverlap(Strict):
    """What runs beside what in a step."""

    kind: str = Field(description="how a step is rearranged (`show overlaps`)")
    options: dict[str, Any] = Field(default_factory=dict, description="parameters of the kind")
