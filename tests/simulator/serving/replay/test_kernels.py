"""Kernels: their heaps, their cache, and what happens without a compiler."""

import sys
from heapq import heapify, heappop
from types import ModuleType

import numpy as np
import pytest

from simulator.serving.replay import columns, lists, prices
from simulator.serving.replay.columns import CACHED_BEFORE, FIRST, LOADED, Patience
from simulator.serving.replay.kernels import Compiler, cache_folder, digest, has_compiler, kernel


def test_the_heap_of_an_array_is_that_of_a_list():
    random, room = np.random.default_rng(0), 40
    array, heap = np.zeros(2 * room, np.int64), []
    for turn in range(3000):
        if heap and (len(heap) == room - 2 or random.random() < 0.48):
            if random.random() < 0.3:
                key = int(random.choice(heap))
                heap.remove(key)
                heapify(heap)
                lists.drop_from_array(array, 1, room, key)
            else:
                heappop(heap)
                lists.pop_of_array(array, 1, room)
        else:
            key = int(random.integers(1 << 40)) * 4096 + turn
            lists.push([[], heap], 1, room, key)
            lists.push_on_array(array, 1, room, key)
        assert lists.least([[], heap], 1, room) == lists.least_of_array(array, 1, room)
    assert not array[:room].any()


def test_rows_of_an_array_are_those_of_a_list():
    row = (0.5, 0.75, 0.25, 2, 3, 4, 5, 6, 7, 8, 9)
    counts, array, listed = [0] * 20, np.zeros(22), []
    for _ in range(2):
        lists.put_row(listed, [0] * 20, *row)
        lists.put_row_in_array(array, counts, *row)
    assert array.tolist() == listed
    assert sum(counts) == 2


def test_the_digest_follows_every_file(tmp_path):
    pytest.importorskip("numba")
    path = tmp_path / "part.py"
    path.write_text("A = 1\n")
    module = ModuleType("part")
    module.__file__ = str(path)
    before = digest((lists, module))
    assert digest((lists, module)) == before != digest((lists, prices))
    path.write_text("A = 2\n")
    assert digest((lists, module)) != before


def compiler():
    return Compiler(columns.MODULES, lists.WRITTEN_OUT, ("int64",))


def test_without_a_compiler_nothing_is_compiled(monkeypatch):
    monkeypatch.setattr("simulator.serving.replay.kernels.has_compiler", lambda: False)
    assert compiler().entry("run_single") is None


def test_a_compiler_that_cannot_be_imported_is_told_once(monkeypatch, tmp_path, capsys):
    pytest.importorskip("numba")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setitem(sys.modules, "numba", None)
    unfit = compiler()
    assert unfit.entry("run_single") is None
    assert unfit.entry("run_single") is None
    assert capsys.readouterr().err.count("runs stay plain") == 1
    assert not unfit.usable()


def test_a_cache_that_cannot_be_written_is_told(monkeypatch, tmp_path, capsys):
    pytest.importorskip("numba")
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert not str(compiler()._folder()).startswith(str(tmp_path))
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ready", "cached", "enough"), [(True, True, LOADED), (False, True, CACHED_BEFORE), (False, False, FIRST)]
)
def test_short_runs_stay_plain(monkeypatch, ready, cached, enough):
    monkeypatch.setattr(columns.COMPILER, "usable", lambda: True)
    monkeypatch.setattr(columns.COMPILER, "ready", lambda name: ready)
    monkeypatch.setattr(columns.COMPILER, "cached", lambda name: cached)
    assert not Patience().runs_fast("run_single", enough - 1)
    assert Patience().runs_fast("run_single", enough)


def test_many_short_runs_count_as_a_long_one(monkeypatch):
    monkeypatch.setattr(columns.COMPILER, "usable", lambda: True)
    monkeypatch.setattr(columns.COMPILER, "ready", lambda name: False)
    monkeypatch.setattr(columns.COMPILER, "cached", lambda name: True)
    patience, requests = Patience(), CACHED_BEFORE // 2
    assert [patience.runs_fast("run_single", requests) for _ in range(3)] == [False, True, True]


def test_a_kernel_is_itself_in_plain_runs():
    @kernel
    def twice(number):
        return 2 * number

    assert twice(4) == 8


def test_the_cache_lies_with_the_users(monkeypatch, tmp_path):
    pytest.importorskip("numba")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = cache_folder(columns.MODULES)
    assert folder.parent.parent == tmp_path
    assert has_compiler()
