"""Runs importers over a file or a folder and writes point files."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import InputError, UnknownNameError
from profiles import points
from profiles.importers.common import Importer, ImportOptions
from profiles.importers.physics import impossible
from profiles.importers.registry import IMPORTERS


@dataclass(frozen=True)
class ImportResult:
    """What an import found.

    Attributes:
        files: the point files written, by table.
        written: points written, by table.
        impossible: points dropped because their device cannot be so fast, by table.
        zero: points dropped because their time was below the source's resolution, by table.
        merged: how many measurements of one shape and source were merged into their median.
        read: source files, by importer.
        passed_over: source files that no importer knows.
    """

    files: dict[str, Path]
    written: dict[str, int]
    impossible: dict[str, int]
    zero: dict[str, int]
    merged: int
    read: dict[str, int] = field(default_factory=dict)
    passed_over: int = 0


def import_points(
    source: str | Path, out: str | Path, form: str = "", options: ImportOptions | None = None
) -> ImportResult:
    """Turn measurements of others into point files.

    Args:
        source: a file, or a folder that is searched whole.
        out: folder for the point files; those of the same tables are replaced.
        form: an importer's name; empty means that each file is recognised by what it looks like.
        options: what the files leave out.

    Raises:
        InputError: nothing to import, or a value that is wrong, with file, line and column.
    """
    source, out = Path(source), Path(out)
    if form and form not in IMPORTERS:
        raise UnknownNameError("import format", form, IMPORTERS)
    importers = [IMPORTERS[form]] if form else list(IMPORTERS.values())
    rows: dict[str, list[dict[str, Any]]] = defaultdict(list)
    read: Counter[str] = Counter()
    candidates = _candidates(source)
    for path in candidates:
        importer = _importer(path, importers, forced=bool(form) and path == source)
        if importer is not None:
            read[importer.name] += 1
            for table, row in importer.read(path, options or ImportOptions()):
                rows[table].append(row)
    if not any(rows.values()):
        listed = "; ".join(f"{importer.name}: {importer.description}" for importer in importers)
        raise InputError(f"holds nothing that can be imported ({listed})", str(source))
    return _written(out, rows, dict(read), len(candidates) - read.total())


def _candidates(source: Path) -> list[Path]:
    if source.is_dir():
        return sorted(path for path in source.rglob("*") if path.is_file())
    if not source.is_file():
        raise InputError("no such file or folder", str(source))
    return [source]


def _importer(path: Path, importers: list[Importer], forced: bool) -> Importer | None:
    if forced:
        return importers[0]
    return next((importer for importer in importers if importer.recognises(path)), None)


def _written(
    out: Path, rows: dict[str, list[dict[str, Any]]], read: dict[str, int], passed_over: int
) -> ImportResult:
    files, written, dropped, zero = {}, {}, {}, {}
    merged = 0
    for name, table_rows in rows.items():
        table = points.TABLES[name]
        timed = [row for row in table_rows if row["time_us"] > 0]
        zero[name] = len(table_rows) - len(timed)
        once = _medians(table, timed)
        merged += len(timed) - len(once)
        columns = {c.name: np.array([row.get(c.name, c.default) for row in once]) for c in table.columns}
        bad = impossible(points.Points(table, columns)) if once else np.zeros(0, dtype=bool)
        good = [row for row, wrong in zip(once, bad, strict=True) if not wrong]
        files[name] = out / f"{name}.csv"
        written[name] = points.write(files[name], table, good)
        dropped[name] = int(bad.sum())
    return ImportResult(files, written, dropped, zero, merged, read, passed_over)


def _medians(table: points.PointTable, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each point and source, in the order of their first occurrence."""
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[(*table.key(row), row.get("source", ""))].append(row)
    result = []
    for same in groups.values():
        if len(same) == 1:
            result.append(same[0])
            continue
        low, middle, high = np.percentile([row["time_us"] for row in same], (25, 50, 75))
        result.append({**same[0], "time_us": float(middle), "spread": float((high - low) / middle)})
    return result
