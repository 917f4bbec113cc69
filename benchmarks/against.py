"""Speed of the working tree against another version, both in turn on this machine.

Machines differ, and a shared one changes from minute to minute, so a ratio to a known version says more than
seconds. The other version is checked out in a temporary git worktree and runs with the installed libraries.

python -m benchmarks.against REF [--runs N] [--only WORD ...]
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated

from benchmarks.start import PLAN, ROOT, run
from core.errors import InputError
from evidence.command import command

NUMBER = r"([\d.,]+)"
EXPERTS = "--model deepseek-v3 --cluster dgx-h100 --seq-len 4096 --global-batch 15360"
SERVED = "plan serve --gpus 16 --isl 2048 --osl 256 --rate 12 --ttft 1 --tpot 0.05"
PROCESSES = {
    "--help": "--help",
    "README's plan": " ".join(PLAN),
    "plan train, DeepSeek-V3 on 2,048": f"plan train {EXPERTS} --gpus 2048",
    "plan size, DeepSeek-V3 on 256..2048": f"plan size {EXPERTS} --gpus 256..2048 --tokens 15e12",
    "plan serve, README's": "plan serve --model llama3.1-8b --cluster dgx-h100 --gpus 8"
    " --isl 1000 --osl 200 --rate 20 --ttft 0.5 --tpot 0.03",
    "plan serve, Llama 3.1 70B on 16": f"{SERVED} --model llama3.1-70b --cluster dgx-h100",
    "plan serve, DeepSeek-V3 on 16": f"{SERVED} --model deepseek-v3 --cluster dgx-h200",
}
"""Commands by name."""
PRINTED = {
    "benchmarks.search": {
        "whole search, CPU s": rf"whole search .*?\({NUMBER} s of CPU",
        "step times, plans/s": rf"step time +{NUMBER} plans/s",
        "predictions, plans/s": rf"predict +{NUMBER} plans/s",
        "memory, plans/s": rf"memory +{NUMBER} plans/s",
    },
    "benchmarks.prediction": {
        "one prediction of Llama 3 70B, ms": rf"llama3-70b .*?prediction +{NUMBER} ms",
        "one prediction of DeepSeek-V3, ms": rf"deepseek-v3 .*?prediction +{NUMBER} ms",
    },
    "benchmarks.serving --small": {
        "served, requests/s of CPU": rf'"requests_per_cpu_s": {NUMBER}',
    },
    "benchmarks.engine": {
        "engine, tasks/s": rf"linear in tasks: 64 stages x 400 .*? s +{NUMBER} tasks/s",
    },
}
"""Figures that benchmarks print."""
Figures = dict[str, float]


def process(name: str, words: str) -> Callable[[Path], Figures]:
    """CPU seconds of a command as a process."""

    def measure(root: Path) -> Figures:
        return {f"{name} as a process, CPU s": run(("-m", "meshwright", *words.split()), root)[0].cpu}

    return measure


def printed(module: str, patterns: Mapping[str, str]) -> Callable[[Path], Figures]:
    """The figures that a benchmark prints (module and its words); none where a version lacks it."""

    def measure(root: Path) -> Figures:
        name, *words = module.split()
        if not (root / f"{name.replace('.', '/')}.py").exists():
            return {}
        output = run(("-m", name, *words), root)[1]
        figures = {name: re.search(pattern, output) for name, pattern in patterns.items()}
        return {name: float(match[1].replace(",", "")) for name, match in figures.items() if match}

    return measure


MEASURES = {
    **{name: process(name, words) for name, words in PROCESSES.items()},
    **{module: printed(module, patterns) for module, patterns in PRINTED.items()},
}
HIGHER_IS_BETTER = ("plans/s", "requests/s of CPU", "tasks/s")


def text(figure: float) -> str:
    """A figure for people."""
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def compare(other: Path, runs: int, measures: Iterable[Callable[[Path], Figures]]) -> None:
    """Print each figure of both checkouts, and their ratio."""
    print(f"{'best (median)':58} {'there':>21} {'here':>21}   here/there")
    for measure in measures:
        pairs = [(measure(other), measure(ROOT)) for _ in range(runs + 1)][1:]  # the first run fills caches
        for name in pairs[0][1]:
            best = max if name.endswith(HIGHER_IS_BETTER) else min
            here = [ours[name] for _, ours in pairs]
            there = [theirs[name] for theirs, _ in pairs if name in theirs]
            figures = f"{text(best(here))} ({text(median(here))})"
            if not there:
                print(f"{name:58} {'not measured there':>21} {figures:>21}")
                continue
            ratio = f"{best(here) / best(there):.3f} ({median(here) / median(there):.3f})"
            print(
                f"{name:58} {f'{text(best(there))} ({text(median(there))})':>21} {figures:>21}   {ratio}",
                flush=True,
            )


@contextmanager
def checkout(ref: str) -> Iterator[Path]:
    """A temporary worktree of another version."""
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "other"
        git = ("git", "-C", str(ROOT), "worktree")
        subprocess.run([*git, "add", "--quiet", "--detach", str(other), ref], check=True)
        # Before 0.20 a folder without this file, which an installed package of that name takes the place of.
        (other / "benchmarks" / "__init__.py").touch()
        try:
            yield other
        finally:
            subprocess.run([*git, "remove", "--force", str(other)], check=True)


@command
def main(
    ref: str,
    *,
    runs: int = 5,
    only: Annotated[Sequence[str], "measures whose name has one of these"] = ("",),
) -> None:
    """Check the other version out, and compare."""
    measures = [measure for name, measure in MEASURES.items() if any(word in name for word in only)]
    if not measures:
        raise InputError(f"no measure has {' or '.join(only)}; there are {', '.join(MEASURES)}", "--only")
    with checkout(ref) as other:
        compare(other, runs, measures)
