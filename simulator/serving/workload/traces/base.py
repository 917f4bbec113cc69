"""Interface of trace readers: stream the rows of a public file format, checked while reading."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from core.errors import InputError, shown, shown_path

LONGEST_LINE = 16 * 2**20
"""Characters of a line; lines of published traces have at most some 100 kB."""
LONGEST_FILE = 2**30
"""Characters of a file that is read as a whole; ShareGPT's has 0.7 GB."""
LARGEST = 1e12
"""Of a number in a trace."""

NumberT = TypeVar("NumberT", int, float)


class TraceRow(NamedTuple):
    """One request of a trace.

    ``arrival_s`` is NaN where the format has no times; ``where`` is its file and line.
    """

    arrival_s: float
    prompt: int
    output: int
    prefix: tuple[int, ...] = ()
    where: str = ""
    cached: int = 0


class RecordedCall(NamedTuple):
    """A call of a recorded agent: seconds after the answer above it, lengths, and ids of its blocks."""

    wait_s: float
    prompt: int
    output: int
    prefix: tuple[int, ...] = ()
    agents: tuple[RecordedAgent, ...] = ()
    """Sub-agents that start after its answer; the agent's next call waits for them."""
    where: str = ""


class RecordedAgent(NamedTuple):
    """A sub-agent: seconds from the answer that starts it to its first call, and its calls."""

    start_s: float
    calls: tuple[RecordedCall, ...]


class RecordedSession(NamedTuple):
    """A recorded session of an agent."""

    calls: tuple[RecordedCall, ...]
    shared: bool
    """Whether its block ids are those of other sessions too."""


@dataclass(frozen=True)
class TraceFormat:
    """A public format of request logs.

    Attributes:
        name: name in workloads.
        columns: required columns, for people.
        source: publication.
        timed: rows have arrival times.
        prefix_tokens: tokens that one prefix id stands for; 0 where rows have none.
        read: yields the rows of a file in order.
        sessions: yields sessions whose calls wait for each other; None where requests are independent.
    """

    name: str
    columns: str
    source: str
    read: Callable[[Path], Iterator[TraceRow]]
    timed: bool = True
    prefix_tokens: int = 0
    sessions: Callable[[Path], Iterator[RecordedSession]] | None = None


class TraceText:
    """Text of a trace, read in bounded pieces: a packed file may hold a thousand times its size.

    Args:
        file: the open file.
        path: its name in errors.
    """

    def __init__(self, file: TextIO, path: Path) -> None:
        self._file, self._path = file, path

    def __iter__(self) -> Iterator[str]:
        """Yield the lines.

        Raises:
            InputError: a line is longer than ``LONGEST_LINE``.
        """
        number = 0
        while line := self._file.readline(LONGEST_LINE + 1):
            number += 1
            if len(line) > LONGEST_LINE:
                problem = f"line {number} is longer than {LONGEST_LINE // 2**20} Mi characters"
                raise InputError(f"{problem}; is the file in another format?", shown_path(self._path))
            yield line

    def read(self) -> str:
        """The whole text.

        Raises:
            InputError: it is longer than ``LONGEST_FILE``.
        """
        text = self._file.read(LONGEST_FILE + 1)
        if len(text) > LONGEST_FILE:
            raise InputError(
                f"unpacks to more than {LONGEST_FILE // 2**30} Gi characters", shown_path(self._path)
            )
        return text


@contextmanager
def opened(path: Path) -> Iterator[TraceText]:
    """Open a text file, gzipped or not.

    Raises:
        InputError: the file cannot be opened or read, or unpacks to a line or text beyond all traces.
    """
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig", newline="")
        ) as file:
            yield TraceText(file, path)
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be read ({reason})", shown_path(path)) from None
    except ValueError as error:  # a path with a NUL character
        raise InputError(f"cannot be opened ({error})", shown_path(path)) from None


def csv_rows(
    path: Path, columns: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place (file and line) and the cells of the given columns of every row of a CSV file.

    Args:
        path: the file.
        columns: columns that must be there.
        optional: columns that are read where they are there.

    Raises:
        InputError: a column is missing (names those found), a row is short, the file is not CSV.
    """
    with opened(path) as file:
        reader = csv.reader(file)
        try:
            header = next(reader, [])
            missing = [name for name in columns if name not in header]
            if missing:
                there = ", ".join(map(shown, header[:20])) or "nothing"
                problem = f"line 1: column {missing[0]!r} is missing; found {there}"
                raise InputError(problem, shown_path(path))
            columns = [*columns, *(name for name in optional if name in header)]
            places = [header.index(name) for name in columns]
            pick, last, place = itemgetter(*places), max(places), str(path)
            for cells in reader:
                if cells:
                    padded = cells if len(cells) > last else [*cells, *[None] * (last + 1 - len(cells))]
                    yield f"{place}: line {reader.line_num}", dict(zip(columns, pick(padded)))  # noqa: B905
        except csv.Error as error:
            raise InputError(f"line {reader.line_num}: cannot be read ({error})", shown_path(path)) from None


def parsed(text: str, where: str) -> Any:
    """The value of JSON text.

    Raises:
        InputError: the text is not valid JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}: " if "\n" in text.strip() else ""
        raise InputError(f"{line}not valid JSON ({error.msg})", where) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON ({str(error).split(';')[0]})", where) from None


def json_rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place and the object of every line of a JSON-lines file.

    Raises:
        InputError: a line is not a JSON object.
    """
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            where = f"{path}: line {number}"
            row = parsed(line, where)
            if not isinstance(row, dict):
                raise InputError(f"a JSON object is needed, found {shown(line.strip())}", where)
            yield where, row


def number(
    cells: Mapping[str, Any],
    column: str,
    where: str,
    kind: type[NumberT],
    least: float,
    largest: float = LARGEST,
) -> NumberT:
    """The number in a column.

    Raises:
        InputError: missing, not a number, below ``least`` or above ``largest``.
    """
    text = cells.get(column)
    try:
        value = kind(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        needed = "a whole number" if kind is int else "a number"
        raise InputError(f"column {column!r}: {needed} is needed, found {shown(text)}", where) from None
    if not value >= least:
        raise InputError(f"column {column!r}: at least {least:g} is needed, found {shown(text)}", where)
    if value > largest:
        problem = f"column {column!r}: at most {largest:g} is allowed, found {shown(text)}"
        raise InputError(f"{problem}; is it in another unit?", where)
    return value
