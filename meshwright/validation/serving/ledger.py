"""Predicted against measured serving runs: every file of a folder, every metric, errors by group."""

from __future__ import annotations

import csv
import gzip
import io
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from hwmodels.errors import InputError, MeshwrightError
from meshwright.validation.serving import (
    closed_loop,
    energy,
    mlperf,
    offline,
    open_loop,
    speculative,
    stages,
    static_batch,
    trtllm_tables,
)
from meshwright.validation.serving.case import Case, Row
from meshwright.validation.serving.names import Skipped

SHIPPED = "shipped"
PUBLISHED = Path(__file__).parents[2] / "published" / "serving"
"""Rows that Meshwright ships: TensorRT-LLM's published tables (Apache-2.0), their source in each row."""

READERS: tuple[ModuleType, ...] = (
    closed_loop,
    open_loop,
    stages,
    static_batch,
    trtllm_tables,
    energy,
    mlperf,
    speculative,
    offline,
)
"""One module a file format: NEEDS (columns that tell it), read, predict, group_key."""


@dataclass(frozen=True)
class Entry:
    """One metric of one row."""

    case: Case
    metric: str
    predicted: float
    measured: float

    @property
    def relative_error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class Summary:
    """Errors of one metric of one engine on one GPU in one file; repeats of a configuration count once."""

    file: str
    engine: str
    gpu: str
    metric: str
    flagged: bool
    n: int
    median_abs_error: float
    p90_abs_error: float
    bias: float
    """Median signed error."""


@dataclass
class ServingLedger:
    """All rows of some files."""

    entries: list[Entry] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def summaries(self, key: Callable[[Entry], tuple[str, str, str, str]] | None = None) -> list[Summary]:
        """Errors by group, flagged rows apart.

        Args:
            key: what gives file, engine, gpu and metric of an entry; the row's own by default.
        """
        by: dict[tuple[Any, ...], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for entry in self.entries:
            # A request's own figures are one metric: ttft_ms[17] and ttft_ms[18] are ttft_ms.
            metric = entry.metric.split("[")[0]
            name = key(entry) if key else (entry.case.file, entry.case.engine, entry.case.gpu, metric)
            repeat = f"{entry.case.engine} {entry.case.group}" if entry.case.group else entry.case.case_id
            if metric != entry.metric:
                repeat += entry.metric
            by[(*name, entry.case.flagged)][repeat].append(entry.relative_error)
        found = []
        for (file, engine, gpu, metric, flagged), groups in sorted(by.items()):
            signed = np.array([float(np.median(errors)) for errors in groups.values()])
            size = np.abs(signed)
            found.append(
                Summary(
                    file,
                    engine,
                    gpu,
                    metric,
                    flagged,
                    len(signed),
                    float(np.median(size)),
                    float(np.percentile(size, 90)),
                    float(np.median(signed)),
                )
            )
        return found


def evaluate(paths: Iterable[Path], progress: Callable[[float], None] | None = None) -> ServingLedger:
    """Predict every row of the files, or of the files in folders, that states what was run.

    Args:
        paths: CSV files (perhaps gzipped) or folders of them; "shipped" for those that come with Meshwright.
        progress: called now and then with the share of rows done.

    Raises:
        InputError: no such file, or one that is none of the known formats.
    """
    ledger = ServingLedger()
    questions: dict[ModuleType, list[Case]] = defaultdict(list)
    for given in paths:
        path = PUBLISHED if str(given) == SHIPPED else given
        for file in _files(path):
            _read(file, named=not path.is_dir(), questions=questions, ledger=ledger)
    total, done = max(sum(map(len, questions.values())), 1), 0
    for reader, cases in questions.items():
        groups: dict[Any, list[Case]] = defaultdict(list)
        for case in cases:
            groups[reader.group_key(case.question)].append(case)
        for same in groups.values():
            _predict(reader, same, ledger)
            done += len(same)
            if progress:
                progress(done / total)
    return ledger


def _files(path: Path) -> Sequence[Path]:
    if not path.exists():
        raise InputError("no such file or folder", str(path))
    if not path.is_dir():
        return [path]
    return sorted([*path.glob("*.csv"), *path.glob("*.csv.gz"), *path.glob("*/meta.csv")])


def _read(path: Path, named: bool, questions: dict[ModuleType, list[Case]], ledger: ServingLedger) -> None:
    rows, header = _rows(path)
    readers = [reader for reader in READERS if all(name in header for name in reader.NEEDS)]
    if not readers:
        if named:
            raise InputError("is none of the known formats of measured serving runs", str(path))
        ledger.skipped.append((path.name, "not a file of measured runs that is known"))
        return
    for number, values in enumerate(rows, start=2):
        row = Row(values, f"{path}: line {number}")
        try:
            questions[readers[0]].append(readers[0].read(row, path.name))
        except Skipped as reason:
            ledger.skipped.append((row.text("case_id") or f"{path.name}:{number}", str(reason)))


def _rows(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read ({error})", str(path)) from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        return list(reader), list(reader.fieldnames or [])
    except csv.Error as error:
        raise InputError(f"is not a readable CSV file ({error})", str(path)) from None


def _predict(reader: ModuleType, cases: list[Case], ledger: ServingLedger) -> None:
    try:
        found = reader.predict([case.question for case in cases])
    except MeshwrightError as reason:
        ledger.skipped += [(case.case_id, str(reason)) for case in cases]
        return
    for case, predicted in zip(cases, found, strict=True):
        for metric, measured in case.measured.items():
            if measured > 0 and metric in predicted and np.isfinite(predicted[metric]):
                ledger.entries.append(Entry(case, metric, predicted[metric], measured))
