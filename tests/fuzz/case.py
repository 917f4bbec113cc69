"""What a case is, and how a kind of file becomes broken cases."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.mutate import ODD, as_text, broken, mutated

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Case:
    """A command line and the files that it reads, by name."""

    arguments: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    answers: tuple[str, str] | None = None
    """What a server says to GET and to POST; ``SERVER`` in the arguments stands for its address."""


Kind = Callable[[Random], Case]


def from_data(
    bases: Sequence[tuple[str, Any]],
    commands: Sequence[Sequence[str]],
    beside: Mapping[str, str] | None = None,
) -> Kind:
    """A kind of file that is a mapping.

    Args:
        bases: names of files, and the valid data that mutations start from.
        commands: command lines; ``FILE`` stands for the broken file.
        beside: other files by name.
    """

    def make(random: Random) -> Case:
        name, data = random.choice(bases)
        suffix = Path(name).suffix
        changed = mutated(data, random, random.choice((0, 1, 1, 1, 2, 3, 6)))
        text = as_text(changed, suffix)
        if random.random() < 0.25:
            text = broken(text, random)
        return _case(random.choice(commands), name, text, beside)

    return make


def drawn(
    name: str, question: Callable[[Callable[[Sequence[Any]], Any]], Any], commands: Sequence[Sequence[str]]
) -> Kind:
    """A kind of file that starts from a random valid question of `tests.laws.questions`."""

    def make(random: Random) -> Case:
        return from_data([(name, question(random.choice))], commands)(random)

    return make


def from_text(
    bases: Sequence[tuple[str, str]],
    commands: Sequence[Sequence[str]],
    beside: Mapping[str, str] | None = None,
) -> Kind:
    """A kind of file that is lines of cells: CSV files and logs."""

    def make(random: Random) -> Case:
        name, text = random.choice(bases)
        for _ in range(random.choice((0, 1, 1, 2, 4))):
            text = cell_changed(text, random) if random.random() < 0.75 else broken(text, random)
        return _case(random.choice(commands), name, text, beside)

    return make


def _case(command: Sequence[str], name: str, text: str, beside: Mapping[str, str] | None) -> Case:
    arguments = tuple(name if part == "FILE" else part for part in command)
    return Case(arguments, {**(beside or {}), name: text})


def cell_changed(text: str, random: Random) -> str:
    """A text with one cell of one line replaced."""
    lines = text.split("\n")
    chosen = random.randrange(len(lines))
    cells = lines[chosen].split(",")
    place = random.randrange(len(cells))
    numbers = (0, -1, 0.2, 1, 3, 1e15, 1e18, 1e308, 2**63, "nan", "inf")
    cells[place] = str(random.choice((*numbers, *(value for value in ODD if isinstance(value, str)))))
    lines[chosen] = ",".join(cells)
    return "\n".join(lines)


def word(value: Any) -> str:
    """An odd value as one word of a command line."""
    text = "1" + "0" * 400 if isinstance(value, int) and abs(value) > 10**300 else str(value)
    return text.replace("\0", "%00").encode("utf-8", "replace").decode()


def describe(case: Case) -> str:
    """A case as shell commands that repeat it."""
    written = [f"cat > {name} <<'END'\n{text}\nEND" for name, text in case.files.items()]
    if case.answers is not None:
        written.append(f"# SERVER says to GET {case.answers[0]!r}, to POST {case.answers[1]!r}")
    return "\n".join([*written, f"meshwright {' '.join(json.dumps(part) for part in case.arguments)}"])
