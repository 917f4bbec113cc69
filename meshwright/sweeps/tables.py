"""Rows of a sweep as CSV or Parquet."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from core.errors import InputError
from core.files import atomic_write, plain_cell, write_text

FORMATS = (".csv", ".parquet")


def write_rows(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Write a table; columns are the union over all rows, in order of first appearance.

    Raises:
        InputError: an unknown extension, pyarrow is missing, or the file cannot be written.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = {name: [_cell(row.get(name)) for row in rows] for name in names}
    if path.suffix == ".parquet":
        _write_parquet(columns, path)
        return
    check_format(path)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    for index in range(len(rows)):
        values = (columns[name][index] for name in names)
        writer.writerow([plain_cell(value) if isinstance(value, str) else value for value in values])
    write_text(path, text.getvalue())


def check_format(path: Path) -> None:
    """Refuse an unknown extension.

    Raises:
        InputError: it is none of ``FORMATS``.
    """
    if path.suffix not in FORMATS:
        raise InputError(f"a table ends with {' or '.join(FORMATS)}, found {path.name!r}", "--out")


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | dict) else value


def _write_parquet(columns: dict[str, list[Any]], path: Path) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install '.[parquet]'", "--out") from None
    arrays = {name: _of_one_kind(values) for name, values in columns.items()}
    with atomic_write(path) as temporary:
        parquet.write_table(pyarrow.table(arrays), temporary)


def _of_one_kind(values: list[Any]) -> list[Any]:
    """A column that mixes text and numbers as text."""
    kinds = {type(value) for value in values if value is not None}
    return [None if v is None else str(v) for v in values] if str in kinds and len(kinds) > 1 else values
