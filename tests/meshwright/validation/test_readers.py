"""Readers of published rows are in the source tree alone."""

import shutil
from pathlib import Path

import pytest

from evidence.serving.collection import collections
from meshwright.observations.server_results import CLOSED_LOOPS
from meshwright.validation import readers

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("words", [("--serving", "shipped"), ("--kept-apart", "runs.csv")])
def test_an_installation_without_evidence_says_where_the_readers_are(run, tmp_path, monkeypatch, words):
    shutil.copy(ROOT / "meshwright" / "published" / "korthikanti_2022.csv", tmp_path / "runs.csv")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(readers, "find_spec", lambda name: None)
    ran = run("validate", *words)
    assert ran.code == 2
    assert ran.err.count("\n") == 1 and "`evidence/` of Meshwright's source tree" in ran.err


def test_a_checkout_as_the_current_folder_is_enough(monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(readers, "find_spec", lambda name: None)
    assert readers.reader("serving.collection", "rows").collections() == collections()


def test_the_columns_of_closed_loops_are_those_of_the_reader():
    assert set(CLOSED_LOOPS) == set(collections()["closed_loop"].needs) - {"harness"}
