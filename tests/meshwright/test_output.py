"""Widths of tables, and readers that end early."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

ASKED = ["plan", "--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "64", "--seq-len", "8k"]
ASKED += ["--global-batch", "128"]


@pytest.mark.parametrize(("columns", "most"), [("80", 80), ("120", 120), ("", 100), ("wide", 100)])
def test_tables_of_files_are_as_wide_as_columns_says(run, monkeypatch, columns, most):
    monkeypatch.setenv("COLUMNS", columns)
    lines = run(*ASKED).out.splitlines()
    assert max(len(line) for line in lines if "MFU" in line) <= most


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize("asked", [["show", "models"], ["show", "scenarios"]])
def test_a_reader_that_has_seen_enough_is_no_failure(asked):
    words = " ".join([sys.executable, "-m", "meshwright", *asked])
    shell = f"{words} | (exec 0<&-; sleep 0); echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(
        ["bash", "-c", shell], capture_output=True, text=True, env=dict(os.environ), check=True
    )
    assert ran.stdout.strip() == "0", ran.stderr
    assert ran.stderr == ""


def test_a_model_shows_its_layers_by_kind_and_the_sequence_of_its_flops(run):
    shown = run("show", "models", "qwen3-next-80b-a3b").out
    assert "36 linear, 12 full" in shown
    assert "in sequences of 4,096" in shown and "in sequences of 262,144" in shown


@pytest.mark.slow
def test_an_unknown_paper_is_refused_with_the_nearest_name():
    ran = subprocess.run(
        [sys.executable, "-m", "benchmarks.papers", "bitpipe-bert"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "did you mean 'bitpipe-bert-5b'" in ran.stderr
