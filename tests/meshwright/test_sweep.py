"""Sweeps: grids, resuming, tables, executors."""

from __future__ import annotations

import csv
from dataclasses import replace
from importlib.util import find_spec

import pytest
import yaml

from core.errors import InputError, UnknownNameError
from meshwright.sweeps.definition import SweepGrid
from meshwright.sweeps.run import run_sweep
from meshwright.sweeps.tables import write_rows
from planner.execution import Execution
from planner.executors import executor
from planner.store import ResultStore

ALONE = Execution(workers=1)
SCENARIO = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 64,
    "workload": {"seq_len": 8192, "global_batch": 128},
    "plan": {"tensor": 2, "zero": 1},
}
GRID = {"model": ["llama3.1-8b", "qwen3-8b"], "gpus": [32, 63, 64], "cluster.network.nic_gbps": [100, 400]}


@pytest.fixture
def write(tmp_path):
    def make(**keys):
        path = tmp_path / "sweep.yaml"
        path.write_text(
            yaml.safe_dump({"ask": "simulate", "scenario": SCENARIO, "grid": GRID, **keys}, sort_keys=False)
        )
        return path

    return make


def test_a_row_for_every_point(write):
    rows = run_sweep(SweepGrid.read(write()), ALONE)
    assert [(row["model"], row["gpus"]) for row in rows[::2]] == [
        (model, gpus) for model in GRID["model"] for gpus in GRID["gpus"]
    ]
    slow, fast = rows[0], rows[1]
    assert slow["step_time_s"] > fast["step_time_s"]
    refused = [row for row in rows if "problem" in row]
    assert {row["gpus"] for row in refused} == {63}
    assert "divide" in refused[0]["problem"] or "equal" in refused[0]["problem"]


def test_a_second_run_answers_nothing_again(write, tmp_path, monkeypatch):
    grid, kept = SweepGrid.read(write()), Execution(workers=1, store=tmp_path / "store.db")
    first = run_sweep(grid, kept)
    with monkeypatch.context() as patched:
        patched.setattr("meshwright.sweeps.run.answer", None)  # any call would fail
        assert run_sweep(grid, kept) == first
    wider = SweepGrid.read(write(grid={**GRID, "gpus": [32, 63, 64, 16]}))
    run_sweep(wider, kept)
    with ResultStore(tmp_path / "store.db") as store:
        assert len(store) == wider.size == len(first) + 4


def test_a_changed_file_is_another_question(write, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nlayers: 4\nhidden: 512\nheads: 8\nfeed_forward: 2048\nvocabulary: 32000\n"
    )
    path = write(scenario={**SCENARIO, "model": "./mine.yaml"}, grid={"gpus": [32, 64]})
    kept = Execution(workers=1, store=tmp_path / "store.db")
    before = run_sweep(SweepGrid.read(path), kept)
    (tmp_path / "mine.yaml").write_text(
        (tmp_path / "mine.yaml").read_text().replace("layers: 4", "layers: 16")
    )
    after = run_sweep(SweepGrid.read(path), kept)
    assert all(new["step_time_s"] > old["step_time_s"] for new, old in zip(after, before, strict=True))


def test_tables(write, tmp_path):
    rows = run_sweep(SweepGrid.read(write(grid={"gpus": [32, 63]})), ALONE)
    write_rows(rows, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        read = list(csv.DictReader(file))
    assert float(read[0]["step_time_s"]) == rows[0]["step_time_s"]
    assert read[1]["step_time_s"] == "" and read[1]["problem"]
    with pytest.raises(InputError, match=r"a table ends with \.csv or"):
        write_rows(rows, tmp_path / "out.xlsx")
    if find_spec("pyarrow"):
        from pyarrow import parquet

        write_rows(rows, tmp_path / "out.parquet")
        assert (
            parquet.read_table(tmp_path / "out.parquet").to_pylist()[0]["step_time_s"]
            == rows[0]["step_time_s"]
        )


def test_refusals(write):
    with pytest.raises(UnknownNameError, match="global_batch"):
        SweepGrid.read(write(grid={"workload.globalbatch": [1]}))
    with pytest.raises(InputError, match="unknown key 'grids'"):
        SweepGrid.read(write(grids={}))
    with pytest.raises(InputError, match="more than 1,000,000"):
        SweepGrid.read(
            write(grid={"gpus": list(range(1, 2000)), "workload.global_batch": list(range(1, 2000))})
        )
    with pytest.raises(UnknownNameError, match="unknown executor"):
        executor("rays")
    number = {**SCENARIO, "cluster": 2**53}
    with pytest.raises(
        InputError, match=r"cluster: must be a name, a path or a mapping, found 9007199254740992"
    ):
        SweepGrid.read(write(scenario=number, grid={"cluster.network.nic_gbps": [100]}))


@pytest.mark.slow
@pytest.mark.parametrize(
    "execution",
    [
        Execution(workers=2),
        pytest.param(
            Execution("ray", workers=2),
            marks=pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed"),
        ),
    ],
    ids=["two workers", "ray"],
)
def test_every_executor_gives_the_same_table(write, tmp_path, monkeypatch, execution):
    monkeypatch.setattr("planner.execution.WORTH_SHARING_S", 0.0)
    grid = SweepGrid.read(write())
    tables = []
    stored = replace(execution, store=tmp_path / "store.db")
    # A cluster of Ray starts once: its start takes most of the test.
    for number, way in enumerate(
        (ALONE, stored) if execution.executor == "ray" else (ALONE, execution, stored)
    ):
        write_rows(run_sweep(grid, way), tmp_path / f"{number}.csv")
        tables.append((tmp_path / f"{number}.csv").read_bytes())
    assert len(set(tables)) == 1


def test_points_without_an_answer_are_counted(write, run):
    ran = run("sweep", str(write()), "--workers", "1")
    assert ran.code == 0, ran.err
    assert "4 of 12 points have no answer" in ran.err


def test_a_refused_sweep_leaves_no_store(refused, tmp_path):
    (tmp_path / "empty.yaml").write_text("\n", encoding="utf-8")
    assert "mapping" in refused("sweep", str(tmp_path / "empty.yaml"), "--store", str(tmp_path / "out/s.db"))
    assert not (tmp_path / "out").exists()
