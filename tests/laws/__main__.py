"""``python -m tests.laws --seconds 3600 --seed N [LAW ...]``: random questions against every law.

Each broken law is shrunk to a question in a YAML file, and a command line that asks it again; the exit
status is then 1.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from typing import NoReturn

import yaml

from tests.laws.questions import Question
from tests.laws.registry import FOLDER, Law, laws
from tests.laws.sweep import Journal, Tally, sweep, verdict

PROGRESS_S = 30.0
PARTS_OF_SEARCHES = 10
"""Predictions asked for each search."""


class Parser(argparse.ArgumentParser):
    """Says one sentence about wrong arguments, without the usage."""

    def error(self, message: str) -> NoReturn:
        """Print the sentence and exit 2."""
        self.exit(2, f"{self.prog}: {message}\n")


def commit() -> str:
    """First eight hex digits of the commit that is tested; zeros outside a repository."""
    asked = ["git", "-C", str(FOLDER), "rev-parse", "HEAD"]
    try:
        ran = subprocess.run(asked, capture_output=True, text=True, check=False)
    except OSError:
        return "0" * 8
    return ran.stdout[:8] if ran.returncode == 0 else "0" * 8


class Progress:
    """A line on stderr every half minute of a law's sweep."""

    def __init__(self, law: Law, questions: int | None) -> None:
        self.law, self.questions, self.last_s = law, questions, monotonic()

    def __call__(self, tally: Tally) -> None:
        """Say how far the sweep is, where the last line is old."""
        if monotonic() - self.last_s < PROGRESS_S:
            return
        self.last_s = monotonic()
        most = f" of {self.questions}" if self.questions else ""
        words = f"{tally.answered}{most} answered, {tally.violations} violations"
        print(f"{self.law.number:3} {self.law.name:28} {words}", file=sys.stderr, flush=True)


def whole(text: str) -> int:
    """A seed, decimal or hexadecimal (0x1a2b3c4d)."""
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a whole number is needed, found {text!r}") from None


def positive(text: str) -> float:
    """Seconds."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1e9:
        raise argparse.ArgumentTypeError(f"seconds above 0 and below 1e9 are needed, found {text!r}")
    return seconds


def count(text: str) -> int:
    """A number of questions."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number above 0 is needed, found {text!r}")
    return number


def command(question: Question, path: Path) -> str:
    """The command of the program that answers a broken question."""
    if "isl" in question:
        return " ".join(["meshwright plan serve", *(f"--{key} {value}" for key, value in question.items())])
    asks = (
        "simulate" if "plan" in question or question.get("workload", {}).get("kind") == "serving" else "plan"
    )
    return f"meshwright {asks} {path}"


def chosen(parser: Parser, names: Sequence[str]) -> list[Law]:
    """The laws of some names or numbers; all where there is none."""
    every = laws()
    by_number = {str(law.number): law.name for law in every.values()}
    picked = [by_number.get(name, name) for name in names]
    for name in picked:
        if name not in every:
            near = get_close_matches(name, every, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"laws: {', '.join(every)}"
            parser.error(f"no law is named {name!r}; {hint}")
    return [every[name] for name in picked] or list(every.values())


def repeat(law: Law, path: Path) -> int:
    """Ask a law the question of a file again."""
    try:
        question = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        print(f"python -m tests.laws: {path}: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    problem = verdict(law, question)
    said = "the question has no answer" if problem is None else problem or "held"
    print(f"{law.number} {law.name}: {said}")
    return int(bool(problem))


def report(law: Law, tally: Tally, seed: int, folder: Path) -> None:
    """Print what a law's questions said, and write the smallest that breaks it."""
    print(
        f"{law.number:3} {law.name:28} {tally.answered:6} answered {tally.refused:6} refused "
        f"{tally.violations:5} violations {tally.seconds:8.1f} CPU s",
        flush=True,
    )
    if tally.smallest is None:
        return
    path = folder / f"{law.name}-{seed:x}.yaml"
    folder.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(tally.smallest, sort_keys=False), encoding="utf-8")
    print(f"    {tally.problem}\n    {command(tally.smallest, path)}")
    print(f"    python -m tests.laws {law.name} --question {path}", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sweep the laws; the exit status is 1 where one is broken."""
    parser = Parser(prog="python -m tests.laws", description=__doc__)
    parser.add_argument(
        "laws", nargs="*", metavar="LAW", help="names or numbers of docs/invariants.md; default: all"
    )
    parser.add_argument("--seconds", type=positive, default=60.0, help="processor time, shared by the laws")
    parser.add_argument(
        "--questions", type=count, help="questions a law instead (a tenth for laws that search)"
    )
    parser.add_argument("--seed", type=whole, help="default: first eight hex digits of the commit")
    parser.add_argument(
        "--question", type=Path, metavar="FILE", help="ask one law the question of a file again"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("broken-laws"), help="where broken questions are written"
    )
    parser.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help="verdicts of this commit: a sweep that was ended goes on from them",
    )
    said = parser.parse_args(arguments)
    asked = chosen(parser, said.laws)
    if said.question is not None:
        if len(asked) != 1:
            parser.error("--question needs the name of one law")
        return repeat(asked[0], said.question)
    at = commit()
    try:
        journal = Journal(said.journal, at)
    except (OSError, ValueError) as error:
        parser.error(f"{said.journal}: {error}")
    seed = int(at, 16) if said.seed is None else said.seed
    print(f"seed {seed:#x}", flush=True)
    violations = 0
    for law in asked:
        if said.questions:
            most = -(-said.questions // PARTS_OF_SEARCHES) if law.searches else said.questions
            tally = sweep(law, seed, questions=most, journal=journal, told=Progress(law, most))
        else:
            seconds = said.seconds / len(asked)
            tally = sweep(law, seed, seconds=seconds, journal=journal, told=Progress(law, None))
        violations += tally.violations
        report(law, tally, seed, said.folder)
    print(f"{len(asked)} laws, {violations} violations")
    return int(violations > 0)


if __name__ == "__main__":
    sys.exit(main())
