"""Start-up of commands as processes: seconds, imported modules and the heaviest imports.

Every command runs several times in a new process, with bytecode files as an installation has them; the first
run, which may write them and the catalogue cache, does not count.

python -m benchmarks.start [--runs N]
"""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import NamedTuple

from evidence.command import command

ROOT = Path(__file__).parents[1]
PLAN = (
    *("plan", "--model", "gpt3-175b", "--cluster", "dgx-a100-80gb"),
    *("--gpus", "1024", "--seq-len", "2048", "--global-batch", "1536"),
)
"""README's plan."""
COMMANDS = {"--help": ("--help",), "README's plan": PLAN}
HEAVIEST = 12
IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


class ProcessTime(NamedTuple):
    """Seconds of one process."""

    user: float
    system: float
    wall: float

    @property
    def cpu(self) -> float:
        """User and system seconds."""
        return self.user + self.system


def environment(root: Path) -> dict[str, str]:
    """Environment in which a checkout is imported, and its bytecode is kept."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**environment, "PYTHONPATH": str(root)}


def run(words: tuple[str, ...], root: Path = ROOT) -> tuple[ProcessTime, str]:
    """Time of one process of Python in a checkout, and its output on both streams.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words],
        env=environment(root),
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=True,
    )
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    user, system = after.ru_utime - before.ru_utime, after.ru_stime - before.ru_stime
    return ProcessTime(user, system, wall), done.stdout


def imports(words: tuple[str, ...]) -> dict[str, float]:
    """Milliseconds of each module that a command imports, without the modules that it imports."""
    _, output = run(("-X", "importtime", "-m", "meshwright", *words))
    return {name: float(micros) / 1e3 for micros, name in IMPORT.findall(output)}


@command
def main(*, runs: int = 8) -> None:
    """Print the figures of each command."""
    for name, words in COMMANDS.items():
        run(("-m", "meshwright", *words))
        times = [run(("-m", "meshwright", *words))[0] for _ in range(runs)]
        lines = (
            f"{figure} {min(values):.2f} ({median(values):.2f})"
            for figure in ("user", "cpu", "wall")
            for values in [[getattr(sample, figure) for sample in times]]
        )
        print(f"{name}: best (median) of {runs} runs, s: {', '.join(lines)}")
        import_s = imports(words)
        packages = Counter[str]()
        for module, spent in import_s.items():
            packages[module.split(".")[0]] += spent
        print(f"  {len(import_s)} modules imported in {sum(import_s.values()):.0f} ms")
        for kind, spent in (("packages", packages), ("modules", Counter(import_s))):
            heaviest = (f"{module} {ms:.0f}" for module, ms in spent.most_common(HEAVIEST))
            print(f"  heaviest {kind}, ms: {', '.join(heaviest)}")
