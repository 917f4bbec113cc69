"""Bounds of the files that people write: size, values, depth, and digits of a number."""

from __future__ import annotations

MOST_BYTES = 4 * 2**20
"""Of a file; the largest shipped one has 27 kB."""
MOST_VALUES = 100_000
"""In a file, with YAML aliases expanded."""
DEEPEST = 64
"""Mappings and lists inside each other."""
UNSCANNED = 1000
"""Open brackets, counted inside strings too, from which YAML is refused unscanned."""
LARGEST = 1e18
"""Largest magnitude of a number: below the range of 64-bit integers."""
SMALLEST = 1e-24
"""Smallest magnitude of a number that is not zero."""
LONGEST_NUMBER = 64
"""Characters of a number."""


def too_long(text: str) -> str:
    """Error message of a number with too many digits."""
    return f"a number of {len(text):,} digits; at most {LARGEST:g} is allowed"
