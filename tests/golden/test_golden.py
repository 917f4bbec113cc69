"""Predictions that only a change of physics may move, and the comparison that says what moved."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "evidence/regression/golden.py"


@pytest.fixture(scope="module")
def golden():
    """``benchmarks.golden``, which is no package that is installed."""
    spec = importlib.util.spec_from_file_location("meshwright_benchmarks_golden", PATH)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_no_prediction_moved(golden, capsys):
    found = golden.compare(golden.stored_answers(), golden.answer_all(), golden.ELSEWHERE)
    golden.report(found, len(golden.read_questions()), 40)
    assert found.same, capsys.readouterr().out


def test_every_stored_answer_answers(golden):
    for name, stored in golden.stored_answers().items():
        assert "error" not in stored, name


FITS = {"step_time_s": 2.0, "parts": [1.0, 0.0], "memory": {"fits": True}}


@pytest.mark.parametrize(
    ("changes", "moved", "unfit", "gone", "new"),
    [
        ({}, [], [], [], []),
        ({"step_time_s": 2.0 * (1 + 1e-10), "parts": [1.0, 1e-15]}, [], [], [], []),
        ({"step_time_s": 2.1, "parts": [1.5, 0.0]}, ["parts.0", "step_time_s"], [], [], []),
        ({"memory": {"fits": False}}, ["memory.fits"], ["a"], [], []),
        ({"memory": {}}, [], [], ["a: memory.fits"], []),
        ({"error": "no such plan"}, [], ["a"], [], ["a: error"]),
        ({"parts": [1.0, 0.0, 3.0]}, ["parts.#"], [], [], ["a: parts.2"]),
    ],
)
def test_a_comparison_lists_what_moved(golden, changes, moved, unfit, gone, new):
    found = golden.compare({"a": FITS}, {"a": FITS | changes})
    assert [move.key for move in found.moves] == moved
    assert (found.unfit, found.gone, found.new) == (unfit, gone, new)
    assert found.same == (not (moved or unfit or gone))
