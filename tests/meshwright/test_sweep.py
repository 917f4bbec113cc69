"""Sweeps: grids, resuming, tables, executors."""

from __future__ import annotations

import csv
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from hwmodels.errors import InputError, UnknownNameError
from meshwright.sweeps.definition import Grid
from meshwright.sweeps.run import run_sweep
from meshwright.sweeps.tables import write_rows
from planner.executors import executor
from planner.store import Store

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
    rows = run_sweep(Grid.read(write()), executor("local"), 1)
    assert [(row["model"], row["gpus"]) for row in rows[::2]] == [
        (model, gpus) for model in GRID["model"] for gpus in GRID["gpus"]
    ]
    slow, fast = rows[0], rows[1]
    assert slow["step_time_s"] > fast["step_time_s"]
    refused = [row for row in rows if "problem" in row]
    assert {row["gpus"] for row in refused} == {63}
    assert "divide" in refused[0]["problem"] or "equal" in refused[0]["problem"]


def test_a_second_run_answers_nothing_again(write, tmp_path):
    grid, seen = Grid.read(write()), []
    first = run_sweep(grid, executor("local"), 1, tmp_path / "store.db")

    def none(function, calls, workers):
        seen.extend(calls)
        return iter(())

    assert run_sweep(grid, none, 1, tmp_path / "store.db") == first
    assert not seen
    wider = Grid.read(write(grid={**GRID, "gpus": [32, 63, 64, 16]}))
    run_sweep(wider, executor("local"), 1, tmp_path / "store.db")
    with Store(tmp_path / "store.db") as store:
        assert len(store) == wider.size == len(first) + 4


def test_a_changed_file_is_another_question(write, tmp_path):
    (tmp_path / "mine.yaml").write_text(
        "name: mine\nlayers: 4\nhidden: 512\nheads: 8\nfeed_forward: 2048\nvocabulary: 32000\n"
    )
    grid = Grid.read(write(scenario={**SCENARIO, "model": "./mine.yaml"}, grid={"gpus": [32, 64]}))
    before = [grid.question(point) for point in grid.points()]
    (tmp_path / "mine.yaml").write_text(
        (tmp_path / "mine.yaml").read_text().replace("layers: 4", "layers: 8")
    )
    assert before != [grid.question(point) for point in grid.points()]


def test_tables(write, tmp_path):
    rows = run_sweep(Grid.read(write(grid={"gpus": [32, 63]})), executor("local"), 1)
    write_rows(rows, tmp_path / "out.csv")
    with (tmp_path / "out.csv").open() as file:
        read = list(csv.DictReader(file))
    assert float(read[0]["step_time_s"]) == rows[0]["step_time_s"]
    assert read[1]["step_time_s"] == "" and read[1]["problem"]
    with pytest.raises(InputError, match=r"a table ends with \.csv or"):
        write_rows(rows, tmp_path / "out.xlsx")
    if importlib.util.find_spec("pyarrow"):
        from pyarrow import parquet

        write_rows(rows, tmp_path / "out.parquet")
        assert (
            parquet.read_table(tmp_path / "out.parquet").to_pylist()[0]["step_time_s"]
            == rows[0]["step_time_s"]
        )


def test_refusals(write):
    with pytest.raises(UnknownNameError, match="global_batch"):
        Grid.read(write(grid={"workload.globalbatch": [1]}))
    with pytest.raises(InputError, match="unknown key 'grids'"):
        Grid.read(write(grids={}))
    with pytest.raises(InputError, match="more than 1,000,000"):
        Grid.read(write(grid={"gpus": list(range(1, 2000)), "workload.global_batch": list(range(1, 2000))}))
    with pytest.raises(UnknownNameError, match="unknown executor"):
        executor("rays")


def command(path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "meshwright", "sweep", str(path), *more]
    return subprocess.run(words, capture_output=True, text=True, timeout=300)


@pytest.mark.slow
def test_two_workers_give_the_same_table(write, tmp_path):
    path = write()
    tables = []
    for workers in ("1", "2"):
        done = command(path, "--workers", workers, "-o", str(tmp_path / f"{workers}.csv"))
        assert done.returncode == 0, done.stderr
        assert "4 of 12 points have no answer" in done.stderr
        tables.append((tmp_path / f"{workers}.csv").read_bytes())
    assert tables[0] == tables[1]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray_gives_the_same_table(write, tmp_path):
    path = write(grid={"gpus": [32, 64, 128]})
    write_rows(run_sweep(Grid.read(path), executor("local"), 1), tmp_path / "local.csv")
    done = command(path, "--executor", "ray", "--workers", "2", "-o", str(tmp_path / "ray.csv"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "ray.csv").read_bytes() == (tmp_path / "local.csv").read_bytes()
