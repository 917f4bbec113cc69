"""Rows of a CSV of published measurements, and their vocabulary."""

from __future__ import annotations

import csv
import io
import re
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

from core.bounds import LARGEST, SMALLEST
from core.cache import read_shipped
from core.errors import InputError
from core.loading import read_text

PUBLISHED = Path(__file__).parent.parent / "published"
"""The cases that Meshwright ships."""

BLANK = ("", "?", "unknown", "not stated", "not given")
"""Cells that state nothing."""
NO_NUMBER = ("none", "-", "n/a")
"""Cells of counts that count nothing."""
SWITCHES = ("sequence_parallel", "flash_attention")
SWITCHED = {
    "yes": "1",
    "true": "1",
    "on": "1",
    "no": "0",
    "false": "0",
    "off": "0",
    "none": "0",
    "unfused": "0",
}
"""Words of columns that are 0 or 1."""

SYNTAX = frozenset("\\.$*+?{}[]()")
"""Characters that make a pattern more than words, each at any place or, after ``^``, at the start."""

REQUIRED = ("case_id", "gpu", "n_gpus", "n_layers", "d_model", "n_heads", "seq_len", "global_batch")


class SkippedRow(Exception):
    """A row leaves open what was run; the message is the reason."""


@cache
def conventions() -> dict[str, Any]:
    """Words of published rows, and their meaning here."""
    return read_shipped(Path(__file__).with_name("conventions.yaml"))


def published_files() -> list[Path]:
    """The CSV files of the cases that Meshwright ships."""
    return sorted(PUBLISHED.glob("*.csv"))


def read_rows(path: Path) -> list[dict[str, str]]:
    """Read a CSV of published runs.

    Raises:
        InputError: unreadable, no header, or a needed column is missing.
    """
    reader = csv.reader(io.StringIO(read_text(path), newline=""))
    try:
        header, *lines = [[cell.strip() for cell in cells] for cells in reader if cells] or [[]]
    except csv.Error as error:
        raise InputError(f"line {reader.line_num}: is not a readable CSV file ({error})", str(path)) from None
    missing = [name for name in REQUIRED if name not in header]
    if missing and len(header) == 1 and ";" in header[0]:
        raise InputError("values are separated by ';', a comma is needed", str(path))
    if missing:
        raise InputError(f"column {missing[0]!r} is missing; needed are {', '.join(REQUIRED)}", str(path))
    twice = [name for name in header if name and header.count(name) > 1]
    if twice:
        raise InputError(f"column {twice[0]!r} is given twice", str(path))
    for number, cells in enumerate(lines, start=2):
        if len(cells) > len(header):
            more = f"row {number}: {len(cells)} values for {len(header)} columns; is a comma without quotes?"
            raise InputError(more, str(path))
    return [dict(zip_longest(header, cells, fillvalue="")) for cells in lines]


class PublishedRow:
    """One CSV row with typed access; errors name the column and the place.

    ``assumed`` lists missing values set by defaults.
    """

    def __init__(self, values: dict[str, str], where: str) -> None:
        switches = {name: values[name] for name in SWITCHES if name in values}
        switched = {name: SWITCHED.get(text.lower(), text) for name, text in switches.items()}
        self.values, self.where = {**values, **switched}, where
        self.assumed: list[str] = []

    def assume(self, what: str) -> None:
        """Record a missing value set by a default."""
        if what not in self.assumed:
            self.assumed.append(what)

    def text(self, name: str, default: str = "") -> str:
        """The text of a column, or the default where it is blank or absent or states nothing."""
        text = self.values.get(name, "")
        return default if text.lower() in BLANK else text

    def number(self, name: str, default: float | None = None) -> float | None:
        """The number in a column.

        Raises:
            InputError: it is not a positive number.
        """
        text = self.text(name)
        if not text or text.lower() in NO_NUMBER:
            return default
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"column {name!r} must be a number, found {text!r}", self.where) from None
        if value and not SMALLEST <= value <= LARGEST:
            raise InputError(
                f"column {name!r} must be 0 or a number from {SMALLEST:g} to {LARGEST:g}, found {text!r}",
                self.where,
            )
        return value

    def need(self, name: str) -> int:
        """A whole number that the row must state."""
        value = self.number(name)
        if not value:
            raise SkippedRow(f"{name} not stated")
        return self._count(name, value)

    def integer(self, name: str, default: int) -> int:
        """A whole number with a default."""
        value = self.number(name)
        return default if value is None else self._count(name, value)

    def _count(self, name: str, value: float) -> int:
        if round(value) < 1:
            raise InputError(f"column {name!r} must be at least 1, found {self.text(name)!r}", self.where)
        return round(value)


def rule_of(row: PublishedRow) -> dict[str, Any]:
    """The release that a row ran (``release``), and what its scripts default to.

    Raises:
        SkippedRow: no release is known for the row's framework.
    """
    if name := row.text("release"):
        return {"release": name}
    text = row.text("framework")
    words = f"{text} | {row.text('precision')} | {row.text('zero_stage')}"
    for rule in conventions()["releases"]:
        if matches(row, rule.get("where", {})) and re.search(rule.get("match", ""), words, re.IGNORECASE):
            if rule.get("assumed"):
                row.assume("framework")
            return rule
    raise SkippedRow(f"framework {text!r} is not known; column 'release' names the one most like it")


def spelled(row: PublishedRow) -> dict[str, str]:
    """The row's columns, blank ones filled by what its words mean: its recipe and plan fields.

    What a rule ``corrects`` counts before what the row states.
    """
    columns: dict[str, str] = {}
    corrected: dict[str, str] = {}
    for spelling in conventions()["spellings"]:
        if matches(row, spelling["where"]):
            fills = spelling["fills"]
            # Of recipes the first counts: the rules go from the narrow to the wide.
            columns |= {k: str(v) for k, v in fills.items() if k != "recipe" or "recipe" not in columns}
            corrected |= {name: str(value) for name, value in spelling.get("corrects", {}).items()}
    return columns | {name: value for name, value in row.values.items() if value} | corrected


def matches(row: PublishedRow, where: dict[str, str]) -> bool:
    """Whether the row's columns match patterns, in any case."""
    return all(_found(pattern, row.text(column)) for column, pattern in where.items())


def _found(pattern: str, text: str) -> bool:
    """Whether a pattern is in a text, in any case.

    Plain words need no compiled pattern: of the shipped tables' patterns, half.
    """
    if not (SYNTAX.isdisjoint(pattern) and pattern.isascii() and text.isascii()):
        return re.search(pattern, text, re.IGNORECASE) is not None
    lowered = text.lower()
    return any(
        lowered.startswith(word[1:]) if word[:1] == "^" else word in lowered
        for word in pattern.lower().split("|")
    )
