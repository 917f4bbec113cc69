"""What importers share: what they are, what they may be told, and typed reading of foreign CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.errors import InputError, suggestion

TablePoint = tuple[str, dict[str, Any]]
"""A table's name and one row of it; ``time_us`` included."""

DTYPES = {
    "float": "fp32",
    "float32": "fp32",
    "c10::float": "fp32",
    "half": "fp16",
    "float16": "fp16",
    "c10::half": "fp16",
    "bfloat16": "bf16",
    "c10::bfloat16": "bf16",
    "double": "fp64",
    "c10::double": "fp64",
    "float8_e4m3": "fp8",
    "fp8_e4m3": "fp8",
    "f8e4m3": "fp8",
    "c10::float8_e4m3fn": "fp8",
    "char": "int8",
    "uint8": "int8",
    "byte": "int8",
}
"""What others call a dtype, in lower case, and what point files call it."""

BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "int32": 4, "int64": 8}


@dataclass(frozen=True)
class ImportOptions:
    """What a file may leave out.

    Attributes:
        gpu: the device; empty means what the file or its folder says.
        system: name for the ``system`` column of collectives; empty means the device.
        collective: "all_reduce", "all_gather", ...; for logs that do not name it.
        devices_per_node: to count nodes where a file names ranks only.
        source: text for the ``source`` column; empty means the format and its version.
    """

    gpu: str = ""
    system: str = ""
    collective: str = ""
    devices_per_node: int = 8
    source: str = ""


@dataclass(frozen=True)
class Importer:
    """A source format.

    Attributes:
        name: as the user names it.
        description: one line.
        recognises: whether a file looks like this format.
        read: the points of a file. It raises InputError with file, line and column for what is wrong.
    """

    name: str
    description: str
    recognises: Callable[[Path], bool]
    read: Callable[[Path, ImportOptions], Iterator[TablePoint]]


def dtype_name(text: str) -> str:
    """The dtype as point files call it; one that nobody here knows stays as it is."""
    return DTYPES.get(text.lower(), text.lower())


class CsvRow:
    """One line of a CSV file with its place, so that what is wrong with it can be said."""

    def __init__(self, cells: Mapping[str, str], path: Path, line: int) -> None:
        self.cells, self.path, self.line = cells, path, line

    def __contains__(self, column: str) -> bool:
        return bool(self.cells.get(column))

    def text(self, column: str, default: str | None = None) -> str:
        """The text of a column.

        Raises:
            InputError: there is no such column, and no default.
        """
        value = self.cells.get(column)
        if value:
            return value
        if default is None:
            if column in self.cells:
                raise self.wrong(column, "a value is needed")
            raise InputError(
                f"line 1: column {column!r} is missing{suggestion(column, self.cells)}", str(self.path)
            )
        return default

    def number(self, column: str) -> float:
        """A number that is finite.

        Raises:
            InputError: it is not.
        """
        try:
            value = float(self.text(column))
        except ValueError:
            raise self.wrong(column, "a number is needed") from None
        if not math.isfinite(value):
            raise self.wrong(column, "a finite number is needed")
        return value

    def size(self, column: str) -> int:
        """A whole number above 0.

        Raises:
            InputError: it is not.
        """
        value = self.number(column)
        if value != int(value) or value < 1:
            raise self.wrong(column, "a whole number above 0 is needed")
        return int(value)

    def time_us(self, column: str, microseconds_each: float) -> float:
        """A time in a unit of so many microseconds, as microseconds.

        Raises:
            InputError: it is not above 0.
        """
        value = self.number(column)
        if value < 0:
            raise self.wrong(column, "a time above 0 is needed")
        return value * microseconds_each

    def wrong(self, column: str, needed: str) -> InputError:
        """The error for a value that cannot be used."""
        cell = self.cells.get(column, "")
        return InputError(f"line {self.line}, column {column}: {needed}, found {cell!r}", str(self.path))


def parsed_json(text: str | bytes, path: Path) -> dict[str, Any]:
    """The mapping at the top of a JSON file.

    Raises:
        InputError: broken or cut off, with the line, or its top is something else.
    """
    try:
        data = json.loads(text)
    except RecursionError:
        raise InputError("mappings and lists are nested too deep", str(path)) from None
    except json.JSONDecodeError as error:
        problem = f"line {error.lineno}: not valid JSON, perhaps cut off ({error.msg})"
        raise InputError(problem, str(path)) from None
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", str(path)) from None
    except ValueError as error:  # a number of thousands of digits
        raise InputError(f"not valid JSON ({error})", str(path)) from None
    if not isinstance(data, dict):
        raise InputError("a mapping of keys to values is needed at the top", str(path))
    return data


def csv_rows(path: Path) -> Iterator[CsvRow]:
    """The rows of a CSV file whose first line names its columns.

    Raises:
        InputError: it cannot be read, or a line has too many or too few values.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    needed = f"{len(header)} values are needed, found {len(cells)}"
                    raise InputError(f"line {reader.line_num}: {needed}", str(path))
                yield CsvRow(dict(zip(header, cells, strict=True)), path, reader.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"cannot be read ({error})", str(path)) from None
