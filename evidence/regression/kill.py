"""End commands by signals at moments of their run.

``python -m benchmarks.kill [COMMAND ...] [--moments 10]`` runs each command once to its end for its duration,
then ends it by TERM, HUP and KILL at moments evenly spread over it. A run that ends before its signal is
repeated, with moments spread over its own duration. Prints and exits 1 where a process is left after five
seconds, a file is partial, or a finished result is lost. Run it on a quiet machine: beside other work a
process may take longer to end.
"""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from evidence.command import command

ROOT = Path(__file__).parents[2]
LEFT_AFTER_S = 5.0
TRIES = 4
"""Runs at most for one moment, where they end before their signal."""
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
SERVING = """
model: llama3.1-8b
cluster: dgx-h100
workload: {kind: serving, requests: 20000, arrivals: {kind: poisson, rate: 40}, input: 300, output: 100}
deployment: {engine: vllm-0.19, replicas: 4}
"""
LLAMA = ("--model", "llama2-7b", "--cluster", "dgx-h100", "--gpus", "64", "--seq-len", "4096")
COMMANDS: dict[str, tuple[str, ...]] = {
    "whatif": ("whatif", "schedules-gpt3-175b", "--html", "out/page.html", "--json"),
    "refine": ("plan", *LLAMA, "--global-batch", "1024", "--refine", "6", "--csv", "out/plans.csv", "--json"),
    "profile": ("profile", "--device", "cpu", "--operations", "copy", "-o", "out", "--json"),
    "serving": ("simulate", "s.yaml", "--requests", "out/requests.csv", "--html", "out/page.html", "--json"),
}


@dataclass
class Ended:
    """What a run left behind."""

    code: int
    out: str
    err: str
    processes: list[int]
    main: int = 0


def session(leader: int) -> list[int]:
    """Processes of a session that have not ended."""
    processes = []
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, IndexError):
            continue
        if entry.name.isdigit() and int(fields[3]) == leader and fields[0] != "Z":
            processes.append(int(entry.name))
    return processes


def run(name: str, folder: Path, number: int | None = None, after_s: float = 0.0) -> Ended | None:
    """Run a command in a folder, and send it a signal after some seconds.

    Returns:
        What is left; None where it ended before the signal.
    """
    (folder / "out").mkdir()
    (folder / "s.yaml").write_text(SERVING, encoding="utf-8")
    with (folder / "stdout").open("w") as out, (folder / "stderr").open("w") as err:
        started = subprocess.Popen(
            [sys.executable, "-m", "meshwright", *COMMANDS[name]],
            cwd=folder,
            stdout=out,
            stderr=err,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
        try:
            if number is None:
                started.wait()
            else:
                try:
                    started.wait(timeout=after_s)
                    return None
                except subprocess.TimeoutExpired:
                    os.kill(started.pid, number)
            left = _left(started)
        finally:
            for process in session(started.pid):
                os.kill(process, signal.SIGKILL)
            started.wait()
    out, err = ((folder / stream).read_text(encoding="utf-8") for stream in ("stdout", "stderr"))
    return Ended(started.returncode, out, err, left, started.pid)


def _left(started: subprocess.Popen[bytes]) -> list[int]:
    end = time.monotonic() + LEFT_AFTER_S
    while time.monotonic() < end:
        started.poll()
        if not session(started.pid):
            return []
        time.sleep(0.05)
    return session(started.pid)


def check(name: str, folder: Path, ended: Ended, number: int) -> list[str]:
    """What is wrong with what a run left."""
    itself = " (the command itself among them)" if ended.main in ended.processes else ""
    faults = [f"{len(ended.processes)} processes left{itself}"] if ended.processes else []
    if "Traceback" in ended.err:
        faults.append(f"traceback {' '.join(ended.err.split())[-400:]}")
    files = sorted(path for path in (folder / "out").rglob("*") if path.is_file())
    faults += [f"partial file {path.name}" for path in files if _partial(path)]
    if number == signal.SIGKILL or ended.code == 0:
        return faults
    # Python itself ends by the signal before it takes it over and after it gives it back: nothing is begun,
    # or all is written. It is ended by SIGINT (130 in a shell) where exec() of text was interrupted.
    starting, over = not (ended.out or ended.err or files), ended.out.endswith("}\n")
    if ended.code not in (130, -signal.SIGINT) and not (ended.code == -number and (starting or over)):
        faults.append(f"exit {ended.code}")
    if not faults and name == "profile" and ended.out:
        measured = json.loads(ended.out)["measured"]
        rows = sum(len(path.read_text().splitlines()) - 1 for path in files if path.suffix == ".csv")
        faults += [] if rows >= measured else [f"{rows} of {measured} measured points written"]
    return faults or _lost(name, folder, ended)


def _partial(path: Path) -> bool:
    if path.name.startswith("."):
        return True
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        return not text.rstrip().endswith("</html>")
    if path.suffix == ".csv":
        rows = list(csv.reader(text.splitlines()))
        return not text.endswith("\n") or len({len(row) for row in rows}) != 1
    return not text.endswith("\n")


def _lost(name: str, folder: Path, ended: Ended) -> list[str]:
    """Results that were finished, by the command's own count, and are not written."""
    counted = re.search(r"interrupted: ([\d,]+) ", ended.err)
    if counted is None:
        return []
    finished = int(counted[1].replace(",", ""))
    if name == "whatif":
        count = len(json.loads(ended.out)["variations"])
        return [] if count == finished else [f"{count} of {finished} finished runs shown"]
    if name == "serving":
        written = len((folder / "out/requests.csv").read_text().splitlines()) - 1
        return [] if written == finished else [f"{written} of {finished} ended requests written"]
    if name == "refine":
        timed = [plan for plan in json.loads(ended.out)["plans"] if "step_time_s" in plan.get("engine", {})]
        return [] if len(timed) == finished else [f"{len(timed)} of {finished} timed plans shown"]
    return []


def kill(name: str, moments: int, signals: Sequence[int] = SIGNALS) -> tuple[int, list[str]]:
    """End a command by each signal at each moment.

    Returns:
        The runs that were ended, and what was wrong.
    """
    with TemporaryDirectory() as folder:
        began = time.monotonic()
        undisturbed = run(name, Path(folder))
        duration = time.monotonic() - began
    if undisturbed is None or undisturbed.code != 0:
        return 0, [f"{name} fails by itself: {undisturbed.err if undisturbed else ''}"]
    ended, faults = 0, []
    for number in signals:
        for moment in range(moments):
            for _ in range(TRIES):
                with TemporaryDirectory() as folder:
                    at = duration * (moment + 0.5) / moments
                    began = time.monotonic()
                    outcome = run(name, Path(folder), number, at)
                    if (
                        outcome is None
                    ):  # the machine is less busy than before: the moment is a share of this run
                        duration = min(duration, time.monotonic() - began)
                        continue
                    ended += 1
                    signal_words = f"{name}, {signal.Signals(number).name} after {at:.1f} of {duration:.1f} s"
                    faults += [
                        f"{signal_words}: {fault}" for fault in check(name, Path(folder), outcome, number)
                    ]
                    break
    return ended, faults


@command
def main(commands: Annotated[Sequence[str], ", ".join(COMMANDS)] = (), *, moments: int = 10) -> int:
    wrong = 0
    for name in commands or COMMANDS:
        ended, faults = kill(name, moments)
        wrong += len(faults)
        for fault in faults:
            print(fault)
        print(f"{name:8} {ended:3} runs ended by TERM, HUP and KILL: {len(faults)} faults", flush=True)
    return int(wrong > 0)
