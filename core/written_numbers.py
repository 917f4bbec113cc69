"""Numbers as people write them: 15e12, 15T, 1.5B."""

from __future__ import annotations

import re

THOUSANDS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12}
"""Suffixes of a number of training tokens; 15T is 15e12."""


MEASURED = re.compile(r"\d[\d,]{0,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,3})?")


def decimal(text: str) -> float:
    """Read a number; the suffixes k, M, B (or G) and T are decimal.

    Raises:
        ValueError: not a number.
    """
    digits = re.fullmatch(r"([0-9_,.]{1,30}|[0-9.]{1,20}[eE][+]?[0-9]{1,3})([kKmMgGbBtT]?)", text.strip())
    return float(digits[1].replace(",", "")) * THOUSANDS[digits[2].lower()] if digits else float(text)


LEAST_MEASURED, MOST_MEASURED = 1e-12, 1e15
"""Range of measured figures: times from a picosecond, tokens and bytes to a petabyte."""


def measured(value: object) -> float | None:
    """A measured figure, finite and above 0 (a number, or text as ``1,234.5``); None for anything else."""
    if isinstance(value, str):
        if MEASURED.fullmatch(value.strip()) is None:
            return None
        figure = float(value.replace(",", ""))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # Comparisons of large whole numbers do not overflow, as `float` does.
        figure = value
    else:
        return None
    return float(figure) if LEAST_MEASURED <= figure <= MOST_MEASURED else None


def decimal_or_as_it_is(value: object) -> object:
    """The number that a text states; other values unchanged, for the field's own check.

    Raises:
        ValueError: text that is no number.
    """
    if not isinstance(value, str):
        return value
    try:
        return decimal(value)
    except ValueError:
        raise ValueError("must be a number, as 15e12, 15T or 300B") from None
