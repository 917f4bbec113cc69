"""Limits of input files: size in bytes, number of values, nesting depth, digits of a number."""

from __future__ import annotations

MOST_BYTES = 4 * 2**20
"""Maximum size of a file, B; the largest shipped file has 27 kB."""
MOST_VALUES = 100_000
"""Maximum number of values in a file, with YAML aliases expanded."""
DEEPEST = 64
"""Maximum nesting depth of mappings and lists."""
UNSCANNED = 1000
"""Number of open brackets, including those in strings, from which YAML is refused before scanning."""
LARGEST = 1e18
"""Largest magnitude of a number: below the range of 64-bit integers."""
SMALLEST = 1e-24
"""Smallest magnitude of a number that is not zero."""
LONGEST_NUMBER = 64
"""Maximum characters of a number."""


def too_long(text: str) -> str:
    """Error message of a number with too many digits."""
    return f"a number of {len(text):,} digits; at most {LARGEST:g} is allowed"
