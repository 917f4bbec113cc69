"""Figures of JSON, which has no infinity."""

from __future__ import annotations

import math


def finite(value: float) -> float | None:
    """The value, or None where it is infinite or undefined."""
    return value if math.isfinite(value) else None
