"""The store: results survive, other versions and other files are told apart."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import suppress

import pytest

from core.errors import InputError, MeshwrightError
from planner.store import Keyed, ResultStore, file_digests

QUESTION = {"ask": "plan", "scenario": {"model": "a", "gpus": 8}}


def test_results_are_found_again(tmp_path):
    question = Keyed.of(QUESTION)
    with ResultStore(tmp_path / "store.db") as store:
        assert store.get([question.key]) == {}
        store.put(question, {"step_time_s": 0.1})
        store.put(question, {"step_time_s": 9.9})  # another run was first
    with ResultStore(tmp_path / "store.db") as store:
        assert store.get([question.key, "other"]) == {question.key: {"step_time_s": 0.1}}
        assert len(store) == 1


def test_program_and_question_are_in_the_key(tmp_path, monkeypatch):
    other = {**QUESTION, "scenario": {"model": "a", "gpus": 16}}
    ours = Keyed.of(QUESTION)
    assert ours.key != Keyed.of(other).key
    assert ours == Keyed.of(dict(reversed(QUESTION.items())))
    with ResultStore(tmp_path / "store.db") as store:
        store.put(ours, {})
        assert store.others() == 0
        monkeypatch.setattr("planner.store.program", lambda: "another version")
        assert store.others() == 1
        assert Keyed.of(QUESTION).key != ours.key


def test_two_runs_share_a_store(tmp_path):
    with ResultStore(tmp_path / "store.db") as one, ResultStore(tmp_path / "store.db") as two:
        one.put(Keyed("a", "{}"), {"x": 1})
        two.put(Keyed("b", "{}"), {"x": 2})
        assert one.get(["a", "b"]) == two.get(["a", "b"]) == {"a": {"x": 1}, "b": {"x": 2}}


def test_a_claim_holds_until_its_process_ends(tmp_path):
    path = tmp_path / "store.db"
    script = (
        "import sys\nfrom pathlib import Path\nfrom planner.store import Keyed, ResultStore\n"
        f"store = ResultStore(Path({str(path)!r}))\n"
        "store.put(Keyed('done', '{}'), {})\n"
        "print(sorted(store.claim(['a', 'b', 'done'])), flush=True)\n"
        "sys.stdin.read()\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "['a', 'b']\n"
    with ResultStore(path) as store:
        assert store.claim(["a", "b", "c", "done"]) == {"c"}
        os.kill(run.pid, signal.SIGKILL)
        run.communicate()
        assert store.claim(["a", "b"]) == {"a", "b"}
    with ResultStore(path) as store:
        assert store._base.execute("SELECT count(*) FROM claims").fetchone() == (0,)


def test_files_of_a_question(tmp_path):
    (tmp_path / "cluster.yaml").write_text("device: ./device.yaml\n")
    (tmp_path / "device.yaml").write_text("name: mine\nsource: ./cluster.yaml\n")
    scenario = {"cluster": "./cluster.yaml", "model": "llama3.1-8b", "gpus": 8}
    before = file_digests(scenario, tmp_path)
    assert set(before) == {"./cluster.yaml", "./cluster.yaml: ./device.yaml"}
    (tmp_path / "device.yaml").write_text("name: other\n")
    after = file_digests(scenario, tmp_path)
    assert [name for name in before if before[name] != after[name]] == ["./cluster.yaml: ./device.yaml"]


def test_a_killed_writer_loses_nothing(tmp_path):
    path = tmp_path / "store.db"
    script = (
        "import sys\nfrom pathlib import Path\nfrom planner.store import Keyed, ResultStore\n"
        f"store = ResultStore(Path({str(path)!r}))\n"
        "for number in range(10**6):\n"
        "    store.put(Keyed(str(number), '{}'), {'n': number})\n"
        "    print(number, flush=True)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    told = [int(run.stdout.readline()) for _ in range(200)]
    os.kill(run.pid, signal.SIGKILL)
    told += [int(line) for line in run.stdout.read().splitlines() if line]
    run.stdout.close()
    run.wait()
    with ResultStore(path) as store:
        assert all(store.get([str(n)]) == {str(n): {"n": n}} for n in told[:-1])


def test_other_files_are_refused(tmp_path):
    (tmp_path / "text.db").write_text("not a database at all, however long this text may be " * 20)
    with pytest.raises(InputError, match="is not a store of results"):
        ResultStore(tmp_path / "text.db")
    with sqlite3.connect(tmp_path / "other.db") as base:
        base.execute("CREATE TABLE mine (x)")
    base.close()
    with pytest.raises(InputError, match="is not a store of results"):
        ResultStore(tmp_path / "other.db")
    ResultStore(tmp_path / "old.db").__exit__(None, None, None)
    with sqlite3.connect(tmp_path / "old.db") as base:
        base.execute("PRAGMA user_version=99")
    base.close()
    with pytest.raises(InputError, match="another version of Meshwright \\(format 99"):
        ResultStore(tmp_path / "old.db")


def test_a_full_disk_is_reported(tmp_path):
    with ResultStore(tmp_path / "store.db") as store:
        store.put(Keyed("a", "{}"), {"x": 1})
        store._base.execute("PRAGMA max_page_count=1")
        with pytest.raises(MeshwrightError, match="results written before are kept"):
            store.put(Keyed("b", "{}"), {"x": "long" * 10_000})
        assert store.get(["a"]) == {"a": {"x": 1}}


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE results SET result = 'no json'",
        "UPDATE results SET result = '[1, 2]'",
        "UPDATE results SET result = '{}'",
        "UPDATE results SET result = replace(result, 'answer', 'anwser')",
        "UPDATE results SET result = NULL WHERE 0; UPDATE results SET result = x'ff00fe'",
        "UPDATE results SET result = replace(result, '42', 'NaN')",
    ],
)
def test_damaged_rows_are_answered_again(damage, tmp_path):
    path = tmp_path / "s.db"
    questions = [Keyed.of({"number": number}) for number in range(3)]
    with ResultStore(path) as store:
        for question in questions:
            store.put(question, {"answer": 42})
    base = sqlite3.connect(path)
    base.executescript(f"{damage} WHERE key = '{questions[1].key}'" if "WHERE" not in damage else damage)
    base.commit()
    base.close()
    keys = [question.key for question in questions]
    with ResultStore(path) as store:
        damaged = set(keys) - store.get(keys).keys()
        assert questions[1].key in damaged
        assert store.claim(keys) == damaged
        for question in questions:
            store.put(question, {"answer": 42})
        assert store.get(keys) == {key: {"answer": 42} for key in keys}


@pytest.mark.parametrize(
    "owner", ["x", "", "host abc 1", "{host} abc 1", "{host} -1 ", "{host} 0 ", "{host} " + "9" * 23 + " 1"]
)
def test_claims_of_no_process_are_void(owner, tmp_path):
    import socket

    question = Keyed.of({"number": 1})
    with ResultStore(tmp_path / "s.db") as store:
        row = (question.key, owner.format(host=socket.gethostname()))
        store._base.execute("INSERT INTO claims VALUES (?, ?)", row)
        assert store.claim([question.key]) == {question.key}


def test_a_store_cut_in_half_is_refused_with_a_sentence(tmp_path):
    path = tmp_path / "s.db"
    with ResultStore(path) as store:
        for number in range(200):
            store.put(Keyed.of({"number": number}), {"answer": "x" * 1000})
    data = path.read_bytes()
    for step in range(40):
        broken = bytearray(data)
        start = step * 97
        broken[start : start + 60] = bytes((byte * 7 + step) % 256 for byte in broken[start : start + 60])
        path.write_bytes(bytes(broken))
        with suppress(MeshwrightError), ResultStore(path) as store:
            store.get([Keyed.of({"number": 3}).key])
            len(store)
