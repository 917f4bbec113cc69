"""Calls through executors and stores: every call once, results survive, runs share a store."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from core.errors import InputError, UnknownNameError
from planner.execution import Execution

CALLS = [(number,) for number in range(20)]


def square(number: int) -> dict[str, int]:
    """Stands for a prediction."""
    return {"square": number * number}


def asked(number: int) -> dict[str, int]:
    """Its question."""
    return {"number": number}


def results(execution: Execution) -> list[int]:
    found = {finished.number: finished.result["square"] for finished in execution.run(square, CALLS, asked)}
    return [found[number] for number in range(len(CALLS))]


@pytest.mark.parametrize("workers", [1, 2])
def test_every_call_is_made_once(tmp_path, monkeypatch, workers):
    monkeypatch.setattr("planner.execution.WORTH_SHARING_S", 0.0)
    alone, kept = Execution(workers=workers), Execution(workers=workers, store=tmp_path / "store.db")
    assert results(alone) == results(kept) == [number * number for (number,) in CALLS]
    assert [finished.stored for finished in kept.run(square, CALLS, asked)] == [True] * len(CALLS)


def test_results_are_stored_before_they_are_yielded(tmp_path):
    kept = Execution(workers=1, store=tmp_path / "store.db")
    run = kept.run(square, CALLS, asked)
    assert [next(run).number for _ in range(3)] == [0, 1, 2]
    run.close()
    assert sum(finished.stored for finished in kept.run(square, CALLS, asked)) == 3


def test_wrong_ways_are_refused_before_work(tmp_path):
    with pytest.raises(UnknownNameError, match="unknown executor"):
        Execution("rays").check()
    (tmp_path / "notes.txt").write_text("no database")
    with pytest.raises(InputError, match="is not a store of results"):
        Execution(store=tmp_path / "notes.txt").check()


@pytest.mark.slow
def test_two_runs_at_once_share_the_calls(tmp_path):
    log = tmp_path / "log.txt"
    script = f"""
import time
from pathlib import Path
from planner.execution import Execution

def work(number):
    time.sleep(0.02)
    with open({str(log)!r}, "a") as file:
        file.write(f"{{number}}\\n")
    return {{"number": number}}

calls = [(number,) for number in range(60)]
execution = Execution(workers=1, store=Path({str(tmp_path / "store.db")!r}))
print(sorted(found.result["number"] for found in execution.run(work, calls, lambda number: {{"n": number}})))
"""
    runs = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    tables = [run.communicate()[0] for run in runs]
    assert tables[0] == tables[1] == f"{list(range(60))}\n"
    assert Counter(log.read_text().split()) == Counter(map(str, range(60)))
