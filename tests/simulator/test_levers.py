"""A searched lever is one file and a line in each list, another a field: all else is derived."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

from simulator import levers
from simulator.levers import BY_PLAN, CODED, ENTRIES, LEVERS, VARIED, Choices, Levers
from simulator.levers.plain import StatedPlain
from simulator.plan import COLUMNS, Plan

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "simulator" / "levers"
NO_FIELD = {"__init__", "lever", "plain", "rule", "overlap_expert", "overlap_tensor"}
"""Modules that are no field of ``Levers``."""

LEVER = '''
"""How fast space is crossed."""

from typing import Literal

import numpy as np
from pydantic import Field

from simulator.levers.lever import Lever, Partial, choice, column
from simulator.levers.rule import ReleaseRule

Value = Literal["slow", "fast"]


class StatedWarp(Partial):
    warp: Value | None = Field(default=None, description="how fast space is crossed")


@choice
class ChosenWarp:
    warp: Value = "slow"


@column
class WarpColumn:
    warp: np.ndarray


LEVER = Lever(
    "warp",
    acts_on="ops",
    combined=True,
    mechanism=lambda _, value: ("warp",) if value == "fast" else (),
    differs=lambda value: f"warp {value}",
    words=lambda value: f"{value} warp",
    rules=(ReleaseRule("warp_core", "there is a core", (), ("warp",), lambda _, plans: plans.warp == 0),),
)
'''
USE = """
from meshwright.reports.plans import lever_words
from planner.training.families import differences
from planner.training.lever_space import SEARCHED
from planner.training.mechanisms import MECHANISMS
from simulator.levers import Choices
from simulator.plan import Plan, Plans
from simulator.rules import RELEASE_RULES

fast, slow = (Plan.model_validate({"warp": value}) for value in ("fast", "slow"))
plans = Plans.of([fast, slow])
assert [plan.warp for plan in plans] == ["fast", "slow"]
assert len(plans.unique("warp")[0]) == 2
assert Choices().warp == "slow"
assert list(SEARCHED)[0] == "warp"
assert MECHANISMS["warp"](None, "fast") == ("warp",)
assert lever_words(fast) == "fast warp"
assert differences(slow, fast) == "warp fast"
assert "warp_core" in [rule.name for rule in RELEASE_RULES]
"""


@pytest.mark.slow
def test_a_new_lever_touches_two_files(tmp_path):
    package = tmp_path / "simulator"
    shutil.copytree(ROOT / "simulator", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "levers" / "warp.py").write_text(LEVER.lstrip())
    listed = package / "levers" / "__init__.py"
    text = listed.read_text()
    for old, new in (
        ("    recompute_modules,\n)", "    recompute_modules,\n    warp,\n)"),
        ("    plain.StatedPlain,\n", "    plain.StatedPlain,\n    warp.StatedWarp,\n"),
        ("    plain.ChosenPlain,\n", "    plain.ChosenPlain,\n    warp.ChosenWarp,\n"),
        ("_SEARCHED = (", "_SEARCHED = (warp.LEVER, "),
        ("class LeverColumns(\n", "class LeverColumns(\n    warp.WarpColumn,\n"),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    listed.write_text(text)
    where = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-c", USE], env=where, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]


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
