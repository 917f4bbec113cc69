"""Broken inputs of every kind: no traceback, no hang, no memory without end, nothing left after a failure."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_broken_inputs_are_refused_and_never_break_the_command():
    """800 cases of one seed, in a process of their own, so that its memory can be judged."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.fuzz", "--cases", "800", "--seed", "0"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]
    assert "800 cases" in ran.stdout
