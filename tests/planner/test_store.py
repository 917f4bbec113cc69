"""The store: results survive, other versions and other files are told apart."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys

import pytest

from hwmodels.errors import InputError, MeshwrightError
from planner.executors.ray_cluster import check_answers
from planner.store import Store, key_of

QUESTION = {"ask": "plan", "scenario": {"model": "a", "gpus": 8}}


def test_results_are_found_again(tmp_path):
    key = key_of(QUESTION, "1")
    with Store(tmp_path / "store.db") as store:
        assert store.get(key) is None
        store.put(key, "1", QUESTION, {"step_time_s": 0.1})
        store.put(key, "1", QUESTION, {"step_time_s": 9.9})  # another run was first
    with Store(tmp_path / "store.db") as store:
        assert store.get(key) == {"step_time_s": 0.1}
        assert len(store) == 1


def test_version_and_question_are_in_the_key(tmp_path):
    other = {**QUESTION, "scenario": {"model": "a", "gpus": 16}}
    assert len({key_of(QUESTION, "1"), key_of(QUESTION, "2"), key_of(other, "1")}) == 3
    assert key_of(QUESTION, "1") == key_of(dict(reversed(QUESTION.items())), "1")
    with Store(tmp_path / "store.db") as store:
        store.put(key_of(QUESTION, "1"), "1", QUESTION, {})
        assert store.others("2") == 1
        assert store.others("1") == 0


def test_two_runs_share_a_store(tmp_path):
    with Store(tmp_path / "store.db") as one, Store(tmp_path / "store.db") as two:
        one.put("a", "1", {}, {"x": 1})
        two.put("b", "1", {}, {"x": 2})
        assert (two.get("a"), one.get("b")) == ({"x": 1}, {"x": 2})


def test_a_killed_writer_loses_nothing(tmp_path):
    path = tmp_path / "store.db"
    script = (
        "import sys\nfrom pathlib import Path\nfrom planner.store import Store\n"
        f"store = Store(Path({str(path)!r}))\n"
        "for number in range(10**6):\n"
        "    store.put(str(number), '1', {}, {'n': number})\n"
        "    print(number, flush=True)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    told = [int(run.stdout.readline()) for _ in range(200)]
    os.kill(run.pid, signal.SIGKILL)
    told += [int(line) for line in run.stdout.read().splitlines() if line]
    run.stdout.close()
    run.wait()
    with Store(path) as store:
        assert all(store.get(str(number)) == {"n": number} for number in told[:-1])


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.db").write_text("not a database at all, however long this text may be " * 20)
    with pytest.raises(InputError, match="is no store of Meshwright"):
        Store(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as base:
        base.execute("CREATE TABLE mine (x)")
    base.close()
    with pytest.raises(InputError, match="is no store of Meshwright"):
        Store(tmp_path / "other.db")
    Store(tmp_path / "old.db").__exit__(None, None, None)
    with sqlite3.connect(tmp_path / "old.db") as base:
        base.execute("PRAGMA user_version=99")
    base.close()
    with pytest.raises(InputError, match="another version of Meshwright \\(format 99"):
        Store(tmp_path / "old.db")


def test_a_full_disk_is_told(tmp_path):
    with Store(tmp_path / "store.db") as store:
        store.put("a", "1", {}, {"x": 1})
        store._base.execute("PRAGMA max_page_count=1")
        with pytest.raises(MeshwrightError, match="results written before are kept"):
            store.put("b", "1", {}, {"x": "long" * 10_000})
        assert store.get("a") == {"x": 1}


@pytest.mark.parametrize("address", ["nowhere", "host:port", "host:99999"])
def test_addresses_are_checked(address):
    with pytest.raises(InputError, match="an address is host:port"):
        check_answers(address)


def test_an_address_that_does_not_answer_is_told():
    with pytest.raises(InputError, match=r"no Ray cluster answers at 127\.0\.0\.1:1"):
        check_answers("127.0.0.1:1")
