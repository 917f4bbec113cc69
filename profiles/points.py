"""Measured points on disk: CSV files, one table per file, times in microseconds.

A point file is ``TABLE.csv`` or ``TABLE.csv.gz``. Its first line names the columns, in any order; a
column may be left out where the table below gives it a default. The columns are

==================  ==================================================================================
gemm                gpu, dtype, layout, m, n, k
attention_prefill   gpu, dtype, direction, kernel, batch, seq_q, seq_kv, n_heads, n_kv_heads, head_dim
attention_decode    gpu, dtype, kernel, batch, seq_q, seq_kv, n_heads, n_kv_heads, head_dim
moe                 gpu, dtype, direction, kernel, tokens, hidden, inter, topk, n_experts, tp, ep, dist
collectives         system, op, dtype, n_gpus, n_nodes, bytes
elementwise         op, gpu, dtype, direction, tokens, dims, bytes_per_token
==================  ==================================================================================

and after them ``time_us``, ``spread`` (interquartile range of the repeats over their median) and
``source``. ``m, n, k`` are those of the product itself, whatever the layout. A column ``split`` is
ignored: some published sets mark held-out points with it.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from core.errors import InputError, suggestion
from core.files import atomic_write, plain_cell, read_cell

Row = Mapping[str, Any]

PASSED_OVER = ("split",)
SHAPE = frozenset(("m", "n", "k", "batch", "seq_q", "n_heads", "n_kv_heads", "head_dim"))
"""Columns of sizes that must be positive."""
LARGEST_SIZE = 2**31
LARGEST_WHOLE = 2.0**53
"""Largest range in which floats represent all whole numbers."""


@dataclass(frozen=True)
class Column:
    """A column: the type of its values, and its default in files without it (None: required)."""

    name: str
    kind: type[str] | type[int] | type[float]
    default: str | float | None = None
    allowed: tuple[str, ...] = ()


LAYOUT = Column("layout", str, "forward", ("forward", "dgrad", "wgrad"))
DIRECTION = Column("direction", str, "forward", ("forward", "backward"))
KERNEL = Column("kernel", str, "")


@dataclass(frozen=True)
class PointTable:
    """The columns of one kind of point; the identity columns distinguish points."""

    name: str
    identity: tuple[Column, ...]

    @property
    def columns(self) -> tuple[Column, ...]:
        """Identity, measurement and source."""
        return (
            *self.identity,
            Column("time_us", float),
            Column("spread", float, 0.0),
            Column("source", str, ""),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Column names in the order in which they are written."""
        return tuple(column.name for column in self.columns)

    def key(self, row: Row) -> tuple[str, ...]:
        """Identity of a point, as text."""
        return tuple(str(row.get(column.name, column.default)) for column in self.identity)


def _text(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, str) for name in names)


def _sizes(*names: str) -> tuple[Column, ...]:
    return tuple(Column(name, int) for name in names)


_HEADS = _sizes("batch", "seq_q", "seq_kv", "n_heads", "n_kv_heads", "head_dim")

TABLES: dict[str, PointTable] = {
    table.name: table
    for table in (
        PointTable("gemm", (*_text("gpu", "dtype"), LAYOUT, *_sizes("m", "n", "k"))),
        PointTable("attention_prefill", (*_text("gpu", "dtype"), DIRECTION, KERNEL, *_HEADS)),
        PointTable("attention_decode", (*_text("gpu", "dtype"), KERNEL, *_HEADS)),
        PointTable(
            "moe",
            (
                *_text("gpu", "dtype"),
                DIRECTION,
                KERNEL,
                *_sizes("tokens", "hidden", "inter", "topk", "n_experts", "tp", "ep"),
                Column("dist", str, "balanced"),
            ),
        ),
        PointTable("collectives", (*_text("system", "op", "dtype"), *_sizes("n_gpus", "n_nodes", "bytes"))),
        PointTable(
            "elementwise",
            (
                *_text("op", "gpu"),
                Column("dtype", str, ""),
                DIRECTION,
                *_sizes("tokens"),
                Column("dims", str),
                *_sizes("bytes_per_token"),
            ),
        ),
    )
}


@dataclass(frozen=True)
class Points:
    """The points of one table as equally long arrays, by column name."""

    table: PointTable
    columns: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.columns["time_us"])

    def __getitem__(self, column: str) -> np.ndarray:
        return self.columns[column]

    def where(self, mask: np.ndarray) -> Points:
        """The points for which a mask (or an index array) holds."""
        return Points(self.table, {name: values[mask] for name, values in self.columns.items()})

    def rows(self) -> Iterator[dict[str, Any]]:
        """One mapping per point."""
        for values in zip(*(column.tolist() for column in self.columns.values()), strict=True):
            yield dict(zip(self.columns, values, strict=True))


LONGEST_CELL = 1000
"""Characters of a cell; an array of text is as wide as its longest element."""


def files(folder: Path) -> dict[str, Path]:
    """The point files of a folder by table; of a plain and a zipped one the plain one is taken."""
    paths = {}
    for name in TABLES:
        for suffix in (".csv", ".csv.gz"):
            path = folder / f"{name}{suffix}"
            if path.is_file():
                paths[name] = path
                break
    return paths


def table_of(path: Path) -> PointTable:
    """The table of a file, by the file's name.

    Raises:
        InputError: not the name of a table.
    """
    name = path.name.removesuffix(".gz").removesuffix(".csv")
    if name not in TABLES:
        raise InputError(f"is not named after a table{suggestion(name, TABLES)}", str(path))
    return TABLES[name]


def read(path: Path, table: PointTable | None = None) -> Points:
    """Read a point file.

    Args:
        path: CSV, zipped or not.
        table: table of the file; by default from its name.

    Raises:
        InputError: unreadable, a wrong or missing column, or a value that is wrong, with its line.
    """
    table = table or table_of(path)
    with _opened(path) as file:
        reader = csv.reader(file)
        try:
            header = next(reader, None)
            if header is None:
                raise InputError("is empty; the first line must name the columns", str(path))
            _check_header(table, header, path)
            lines = [row for row in reader if row]
        except (csv.Error, UnicodeDecodeError, EOFError, gzip.BadGzipFile) as error:
            raise InputError(f"is not a readable CSV file ({error})", str(path)) from None
    for number, row in enumerate(lines, start=2):
        if len(row) != len(header):
            raise InputError(f"line {number}: {len(header)} values are needed, found {len(row)}", str(path))
        if any(len(cell) > LONGEST_CELL for cell in row):
            raise InputError(f"line {number}: a cell has more than {LONGEST_CELL:,} characters", str(path))
    by_name = dict(zip(header, zip(*lines, strict=True), strict=True)) if lines else dict.fromkeys(header, ())
    return Points(
        table, {column.name: _values(column, by_name, len(lines), path) for column in table.columns}
    )


def write(path: Path, table: PointTable, rows: Iterable[Row]) -> int:
    """Write a point file atomically: to a temporary file, then renamed.

    Returns:
        The number of points.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.names)
    count = 0
    for row in rows:
        writer.writerow(_cells(table, row))
        count += 1
    data = text.getvalue().encode()
    with atomic_write(path) as temporary:
        temporary.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return count


def append(path: Path, table: PointTable, row: Row) -> None:
    """Add one point to a plain point file, with one write that ends in a newline, and flush it to disk.

    Raises:
        InputError: the file cannot be written (no room, no permission).
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not path.exists() or path.stat().st_size == 0:
        writer.writerow(table.names)
    writer.writerow(_cells(table, row))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, text.getvalue().encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", str(path)) from None


def _cells(table: PointTable, row: Row) -> list[str]:
    cells = []
    for column in table.columns:
        value = row.get(column.name, column.default)
        cells.append(f"{value:.5g}" if column.kind is float else plain_cell(str(value)))
    return cells


def _opened(path: Path) -> TextIO:
    try:
        if path.suffix == ".gz":
            return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
        return path.open(encoding="utf-8-sig", newline="")
    except FileNotFoundError:
        raise InputError("no such file", str(path)) from None
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", str(path)) from None


def _check_header(table: PointTable, header: Sequence[str], path: Path) -> None:
    if len(header) == 1 and ";" in header[0]:
        raise InputError("line 1: values are separated by ';', a comma is needed", str(path))
    for position, name in enumerate(header):
        if name in header[:position]:
            raise InputError(f"line 1: column {name!r} is given twice", str(path))
        if name not in table.names and name not in PASSED_OVER:
            if name.startswith(("time", "latency", "duration")) and "time_us" not in header:
                raise InputError(
                    f"line 1: column {name!r}: times are in microseconds, as 'time_us'", str(path)
                )
            raise InputError(f"line 1: unknown column {name!r}{suggestion(name, table.names)}", str(path))
    for column in table.columns:
        if column.default is None and column.name not in header:
            raise InputError(f"line 1: column {column.name!r} is missing", str(path))


def _values(column: Column, by_name: dict[str, tuple[str, ...]], count: int, path: Path) -> np.ndarray:
    if column.name not in by_name:
        return np.full(count, column.default)
    raw = np.array([read_cell(cell) for cell in by_name[column.name]], dtype=str)
    if column.kind is str:
        bad = (raw == "") if column.default is None else np.zeros(count, dtype=bool)
        if column.allowed:
            bad = ~np.isin(raw, column.allowed)
        values = raw
    else:
        values, bad = _numbers(column, raw)
    if bad.any():
        index = int(np.argmax(bad))
        allowed = " or ".join(column.allowed) or _wanted(column)
        where = f"line {index + 2}, column {column.name}"
        raise InputError(f"{where}: {allowed} is needed, found {str(raw[index])!r}", str(path))
    return values


def _wanted(column: Column) -> str:
    if column.name == "time_us":
        return "a time above 0 (in microseconds)"
    if column.name in SHAPE:
        return f"a whole number from 1 to {LARGEST_SIZE}"
    return {
        str: "a name",
        int: "a whole number that is not negative",
        float: "a number that is not negative",
    }[column.kind]


def _numbers(column: Column, raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers and the mask of those that cannot be used."""
    try:
        values = raw.astype(float)
    except ValueError:
        values = np.array([_number(text) for text in raw])
    with np.errstate(invalid="ignore"):
        bad = ~np.isfinite(values) | (values < 0)
        if column.name == "time_us":
            bad |= values <= 0
        if column.kind is int:
            bad |= (values != np.floor(values)) | (values > LARGEST_WHOLE)
        if column.name in SHAPE:
            bad |= (values < 1) | (values > LARGEST_SIZE)
    if column.kind is int:
        return np.where(bad, 0, values).astype(np.int64), bad
    return values, bad


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")
