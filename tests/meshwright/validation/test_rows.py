"""Patterns of published rows: plain words take a short way with the same answer."""

import re

import pytest

from meshwright.validation.rows import PublishedRow, matches

PATTERNS = ("fp8", "^fp8", "jax|^MaxText", "w/o MTP", "-bridge", "^$", "K", "")
TEXTS = ("", "FP8", "bf16, fp8", "MaxText 1", "of MaxText", "W/O mtp", "A-Bridge", "\u212a")


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("text", TEXTS)
def test_plain_words_match_as_the_pattern_would(pattern, text):
    row = PublishedRow({"notes": text}, "here")
    assert matches(row, {"notes": pattern}) == bool(re.search(pattern, text, re.IGNORECASE))
