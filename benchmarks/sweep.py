"""Sweeps: what store and executor cost, whether every executor gives the same bytes, and what a kill loses.

    python -m benchmarks.sweep [--points 10000] [--same 400] [--kills 10] [--ray]

Cost is CPU time of this process outside of the predictions, in a sweep with a store and one worker. The kill
test starts ``meshwright sweep`` and ends it with SIGKILL.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import yaml

import meshwright.__main__  # noqa: F401 - sets the garbage collector's thresholds, as for the command
from evidence.command import command
from meshwright.sweeps import run
from meshwright.sweeps.definition import SweepGrid
from meshwright.sweeps.run import answer
from meshwright.sweeps.tables import write_rows
from planner.execution import Execution

BATCHES = [128 * count for count in range(1, 51)]
SEQUENCES = [1024 * count for count in (1, 2, 4, 8)]


def sweep_file(folder: Path, points: int) -> Path:
    """A grid of about `points` training plans, 400 to 10,000."""
    grid = {
        "model": ["llama3.1-8b", "qwen3-8b", "mistral-7b", "llama2-7b", "qwen2.5-7b"],
        "cluster": ["dgx-h100", "dgx-h200"],
        "gpus": [32, 64, 128, 256, 512],
        "workload.seq_len": SEQUENCES,
        "workload.global_batch": BATCHES[: max(points // 200, 1)],
    }
    scenario = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 64}
    scenario |= {"workload": {"seq_len": 2048, "global_batch": 512}}
    scenario |= {"plan": {"tensor": 2, "zero": 1, "recompute": "selective"}}
    path = folder / "sweep.yaml"
    path.write_text(yaml.safe_dump({"ask": "simulate", "scenario": scenario, "grid": grid}))
    return path


def overhead(folder: Path, points: int) -> None:
    """CPU time of a sweep outside of its predictions, over that of the predictions."""
    grid = SweepGrid.read(sweep_file(folder, points))
    inside = 0.0

    def timed(*call: Any) -> Any:
        nonlocal inside
        started = time.process_time()
        row = answer(*call)
        inside += time.process_time() - started
        return row

    run.answer = timed  # type: ignore[assignment]
    started = time.process_time()
    rows = run.run_sweep(grid, Execution(workers=1, store=folder / "cost.db"))
    sweep_s = time.process_time() - started
    run.answer = answer
    outside = sweep_s - inside
    print(
        f"{len(rows):,} points: predictions {inside:.1f} CPU s ({1e3 * inside / len(rows):.2f} ms a point), "
        f"store and executor {outside:.1f} CPU s ({1e3 * outside / len(rows):.2f} ms): "
        f"{100 * outside / inside:+.1f} %"
    )


def same_bytes(folder: Path, points: int, with_ray: bool) -> None:
    """One worker, two workers and Ray give the same table."""
    grid = SweepGrid.read(sweep_file(folder, points))
    ways = [("local", 1), ("local", 2), *([("ray", 2)] if with_ray else [])]
    tables = {}
    for name, workers in ways:
        path = folder / f"{name}-{workers}.csv"
        write_rows(run.run_sweep(grid, Execution(name, workers=workers)), path)
        tables[f"{name} with {workers}"] = path.read_bytes()
    first = next(iter(tables.values()))
    for name, table in tables.items():
        print(f"{name}: {len(table):,} bytes, {'the same' if table == first else 'DIFFERENT'}")


def kill_runs(folder: Path, points: int, count: int) -> None:
    """Kill a sweep at random moments; every stored result must stay, and no key may be answered again."""
    path, store = sweep_file(folder, points), folder / "kill.db"
    command = [
        sys.executable,
        "-m",
        "meshwright",
        "sweep",
        str(path),
        "--store",
        str(store),
        "--workers",
        "2",
    ]
    rng, before, lost, changed = random.Random(0), {}, 0, 0
    for _ in range(count):
        sweep = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        target = len(before) + rng.randint(1, 40)
        while len(_stored(store)) < target and sweep.poll() is None:
            time.sleep(0.1)
        time.sleep(rng.uniform(0.0, 0.5))
        with contextlib.suppress(ProcessLookupError):
            os.killpg(sweep.pid, signal.SIGKILL)
        sweep.wait()
        after = _stored(store)
        lost += sum(key not in after for key in before)
        changed += sum(after[key] != row for key, row in before.items() if key in after)
        before = after
    rows_before = len(before)
    subprocess.run([*command, "-o", str(folder / "killed.csv")], check=True, capture_output=True)
    after = _stored(store)
    changed += sum(after[key] != row for key, row in before.items())
    write_rows(run.run_sweep(SweepGrid.read(path), Execution(workers=1)), folder / "whole.csv")
    same = (folder / "killed.csv").read_bytes() == (folder / "whole.csv").read_bytes()
    print(
        f"{count} kills: {rows_before} of {len(after)} points stored before the last run, {lost} lost, "
        f"{changed} answered again; table {'the same as' if same else 'DIFFERENT from'} an unbroken run's"
    )


def _stored(store: Path) -> dict[str, tuple[int, str]]:
    """Rows by key, with the number that SQLite gave them when they were inserted."""
    if not store.exists():
        return {}
    with sqlite3.connect(store, timeout=60) as base:
        try:
            rows = base.execute("SELECT key, rowid, result FROM results").fetchall()
        except sqlite3.OperationalError:
            return {}
    for _, _, result in rows:
        json.loads(result)
    return {key: (number, result) for key, number, result in rows}


@command
def main(
    *,
    points: int = 10_000,
    same: Annotated[int, "points of the comparison and of the kill test"] = 400,
    kills: int = 10,
    ray: bool = False,
) -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if points:
            overhead(folder, points)
        if same:
            same_bytes(folder, same, ray)
        if kills:
            kill_runs(folder, same or 400, kills)
