"""Lengths of documents counted in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

import meshwright as mw
from core.errors import InputError

QUESTION = """
title: counted lengths
model: llama3.1-8b
cluster: dgx-h100
gpus: 8
workload: {seq_len: 8192, global_batch: 32, lengths: LENGTHS, packing: pack}
plan: {micro_batch: 1, zero: 1, data: 8, recompute: full}
"""


def seconds(folder: Path, lengths: str) -> float:
    path = folder / "question.yaml"
    path.write_text(QUESTION.replace("LENGTHS", lengths))
    return mw.simulate(str(path)).simulation.analytic_step_s


def written(folder: Path, text: str) -> str:
    (folder / "lengths.csv").write_text(text)
    return "{kind: histogram, file: lengths.csv}"


def test_a_histogram_is_the_empirical_law_of_its_rows(tmp_path: Path) -> None:
    counted = written(tmp_path, "tokens,weight\n512,3\n8192,1\n")
    assert seconds(tmp_path, counted) == seconds(
        tmp_path, "{kind: empirical, tokens: [512, 8192], weights: [3, 1]}"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "columns must be tokens,weight, found nothing"),
        ("length,count\n1,1\n", "found length,count"),
        ("tokens,weight\n512\n", "two values are needed, found 1"),
        ("tokens,weight\n0,1\n", "tokens must be a whole number"),
        ("tokens,weight\n1.5,1\n", "found '1.5'"),
        ("tokens,weight\n512,-1\n", "weight must be a number of at least 0"),
        ("tokens,weight\n512,nan\n", "found 'nan'"),
        ("tokens,weight\n512,0\n", "no length has a weight above 0"),
    ],
)
def test_files_that_count_nothing_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        seconds(tmp_path, written(tmp_path, text))


@pytest.mark.parametrize("law", ["{kind: histogram}", "{kind: histogram, file: a.csv, most: 5}"])
def test_a_histogram_has_a_file_and_nothing_else(tmp_path: Path, law: str) -> None:
    with pytest.raises(InputError, match="a histogram has kind and file"):
        seconds(tmp_path, law)
