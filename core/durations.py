"""Durations as people write them: a number of seconds, or ``20 min``, ``3 h``, ``10 d``."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import Annotated

from pydantic import BeforeValidator, Field

UNITS = MappingProxyType({"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0})
"""Seconds of each unit."""

LONGEST_S = 1e11
"""Longest duration, s: three thousand years."""

WRITTEN = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([a-z]+)\s*")


def seconds_of(value: object) -> object:
    """Seconds of a written duration; other values unchanged, for the field's own check.

    Raises:
        ValueError: text that is no number with a unit.
    """
    if not isinstance(value, str):
        return value
    read = WRITTEN.fullmatch(value)
    if read is None or read[2] not in UNITS:
        raise ValueError(f"a duration is seconds, or a number with {', '.join(UNITS)} as in '20 min'")
    return float(read[1]) * UNITS[read[2]]


def written(seconds: float) -> str:
    """A duration with the largest unit that it fills: ``3.1 h``."""
    for name, factor in reversed(tuple(UNITS.items())):
        if abs(seconds) >= factor:
            return f"{seconds / factor:.3g} {name}"
    return f"{seconds:.3g} s"


Span = Annotated[float, BeforeValidator(seconds_of), Field(ge=0, le=LONGEST_S)]
"""A duration, s; zero is allowed."""
SomeTime = Annotated[float, BeforeValidator(seconds_of), Field(gt=0, le=LONGEST_S)]
"""A duration above zero, s."""
