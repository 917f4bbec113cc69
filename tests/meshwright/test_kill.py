"""Commands that end by a signal leave no process and no partial file, and keep what was finished."""

import signal
from pathlib import Path

import pytest

from evidence.regression.kill import COMMANDS, Ended, check, kill

if not Path("/proc/self/stat").exists():
    pytest.skip("processes are counted in /proc", allow_module_level=True)


@pytest.mark.slow
def test_a_run_that_is_ended_half_way_shows_what_was_finished():
    ended, faults = kill("serving", 1, [signal.SIGTERM])
    assert (ended, faults) == (1, [])


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("page.html", "<html><body>", "partial file page.html"),
        ("points.csv", "a,b\n1,2\n3", "partial file points.csv"),
        (".12.plans.csv", "", "partial file .12.plans.csv"),
    ],
)
def test_partial_files_are_found(tmp_path, name, text, told):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text(text)
    assert told in check("whatif", tmp_path, Ended(-9, "", "", []), signal.SIGKILL)


def test_lost_results_are_found(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "requests.csv").write_text("serial\n0\n")
    ended = Ended(130, "{}", "interrupted: 2,000 requests had ended\n", [])
    assert check("serving", tmp_path, ended, signal.SIGTERM) == ["1 of 2000 ended requests written"]
    assert check("serving", tmp_path, Ended(-15, "", "", [7]), signal.SIGKILL) == ["1 processes left"]
    assert set(COMMANDS) >= {"whatif", "refine", "profile", "serving"}
