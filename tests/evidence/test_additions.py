"""Members of concepts are as few files as the docs say, and work."""

from __future__ import annotations

import pytest

from evidence.regression.additions import ROOT, additions, problem

ADDITIONS = additions()


@pytest.mark.parametrize("name", ADDITIONS)
def test_an_addition_touches_no_more_files_than_asked(name):
    addition = ADDITIONS[name]
    assert not addition.too_many
    page, _, heading = addition.page.partition("#")
    text = (ROOT / page).read_text(encoding="utf-8").lower()
    assert not heading or f"## {heading.replace('-', ' ')}" in text


@pytest.mark.slow
@pytest.mark.parametrize("name", ADDITIONS)
def test_an_addition_works(name):
    assert not problem(ADDITIONS[name])
