"""A searched lever is one file and a line in each list, another a field: all else is derived."""

from __future__ import annotations

from pathlib import Path
from typing import get_type_hints

from simulator import levers
from simulator.levers import BY_PLAN, CODED, ENTRIES, LEVERS, VARIED, Choices, Levers
from simulator.levers.plain import StatedPlain
from simulator.plan import COLUMNS, Plan

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "simulator" / "levers"
NO_FIELD = {"__init__", "lever", "plain", "rule", "overlap_expert", "overlap_tensor"}
"""Modules that are no field of ``Levers``."""


def test_every_file_is_a_lever_of_its_name():
    files = {path.stem for path in FOLDER.glob("*.py")} - NO_FIELD
    assert files | {*StatedPlain.model_fields} == set(LEVERS) == set(ENTRIES) == set(Levers.model_fields)
    assert files.isdisjoint(StatedPlain.model_fields)
    assert all(ENTRIES[name].name == name for name in LEVERS)
    assert tuple(Levers.model_fields) == LEVERS


def test_types_are_seen_where_code_reads_them():
    for holder in (Levers, Choices):
        hints = get_type_hints(holder)
        assert set(LEVERS) <= hints.keys()


def test_levers_of_plans_have_columns_and_codes():
    assert set(BY_PLAN) < set(COLUMNS)
    assert set(CODED) == set(BY_PLAN) - {"recompute_modules"}
    for name, words in CODED.items():
        assert words[0] is None
        assert getattr(Choices(), name) in words
        for word in words:
            assert getattr(Plan.model_validate({name: word}), name) == word


def test_every_lever_that_a_search_varies_has_words():
    assert {lever.name for lever in VARIED} >= {*BY_PLAN}
    assert all(lever.differs and lever.mechanism for lever in VARIED)
    assert all(lever.words for lever in VARIED if lever.combined)
    assert {rule.name for rule in levers.RULES} == {rule.name for lever in VARIED for rule in lever.rules}
