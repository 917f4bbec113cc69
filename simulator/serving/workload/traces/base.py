"""Interface of trace readers: stream the rows of a public file format, checked while reading."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TextIO, TypeVar

from hwmodels.errors import InputError, shown, shown_path

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
    """

    name: str
    columns: str
    source: str
    read: Callable[[Path], Iterator[TraceRow]]
    timed: bool = True
    prefix_tokens: int = 0


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a text file, gzipped or not.

    Raises:
        InputError: the file cannot be opened or read.
    """
    try:
        with (
            gzip.open(path, "rt", encoding="utf-8-sig", newline="")
            if path.suffix == ".gz"
            else path.open(encoding="utf-8-sig", newline="")
        ) as file:
            yield file
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be read ({reason})", shown_path(path)) from None
    except ValueError as error:  # a path with a NUL character
        raise InputError(f"cannot be opened ({error})", shown_path(path)) from None


def csv_rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the place (file and line) and the cells of the given columns of every row of a CSV file.

    Raises:
        InputError: a column is missing (names those found), a row is short, the file is not CSV.
    """
    with opened(path) as file:
        reader = csv.reader(file)
        try:
            found = next(reader, [])
            missing = [name for name in columns if name not in found]
            if missing:
                there = ", ".join(map(shown, found[:20])) or "nothing"
                problem = f"line 1: column {missing[0]!r} is missing; found {there}"
                raise InputError(problem, shown_path(path))
            places = [found.index(name) for name in columns]
            pick, last, place = itemgetter(*places), max(places), str(path)
            for cells in reader:
                if cells:
                    whole = cells if len(cells) > last else [*cells, *[None] * (last + 1 - len(cells))]
                    yield f"{place}: line {reader.line_num}", dict(zip(columns, pick(whole)))  # noqa: B905
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


def number(cells: Mapping[str, Any], column: str, where: str, kind: type[NumberT], least: float) -> NumberT:
    """The number in a column.

    Raises:
        InputError: missing, not a number, or below ``least``.
    """
    text = cells.get(column)
    try:
        value = kind(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        wanted = "a whole number" if kind is int else "a number"
        raise InputError(f"column {column!r}: {wanted} is needed, found {shown(text)}", where) from None
    if not value >= least:
        raise InputError(f"column {column!r}: at least {least:g} is needed, found {shown(text)}", where)
    if value > LARGEST:
        problem = f"column {column!r}: at most {LARGEST:g} is allowed, found {shown(text)}"
        raise InputError(f"{problem}; is it in another unit?", where)
    return value


def first_line(path: Path) -> str:
    """The first line that is not empty; "" for an empty file."""
    with opened(path) as file:
        return next((line.strip() for line in chain(file) if line.strip()), "")
