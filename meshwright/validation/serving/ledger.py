"""Predicted against measured serving runs: every file of a folder, every metric, errors by group."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import yaml

from hwmodels.errors import InputError, MeshwrightError
from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving import (
    bursts,
    closed_loop,
    energy,
    mlperf,
    multi_lora,
    offline,
    open_loop,
    pd_transfer,
    routed_fleets,
    speculative,
    stages,
    start_up,
    static_batch,
    trtllm_tables,
)
from meshwright.validation.serving.case import MeasuredRow, ServingCase
from planner.execution import Execution
from planner.store import digest_of

MOST_BYTES = 2**26
"""Of a file of measured runs, unpacked; a row has about 0.5 kB."""
SHIPPED = "shipped"
PUBLISHED = Path(__file__).parents[2] / "published" / "serving"
"""Rows that Meshwright ships: TensorRT-LLM's published tables, and latencies of weight-only formats from a
pull request of vLLM (both Apache-2.0); their source is in each row."""

READERS: tuple[ModuleType, ...] = (
    closed_loop,
    bursts,
    open_loop,
    stages,
    static_batch,
    trtllm_tables,
    energy,
    mlperf,
    speculative,
    offline,
    start_up,
    multi_lora,
    pd_transfer,
    routed_fleets,
)
"""One module a file format: NEEDS (columns that tell it), read, predict, group_key;
`scenario` where a row is the run of a scenario (None: it is not),
and `trace` where it reads a trace."""


@dataclass(frozen=True)
class PredictedMetric:
    """One metric of one row."""

    case: ServingCase
    metric: str
    predicted: float
    measured: float

    @property
    def relative_error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class MetricSummary:
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

    entries: list[PredictedMetric] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def summaries(
        self, key: Callable[[PredictedMetric], tuple[str, str, str, str]] | None = None
    ) -> list[MetricSummary]:
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
                MetricSummary(
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


def evaluate(
    paths: Iterable[Path],
    progress: Callable[[float], None] | None = None,
    execution: Execution | None = None,
) -> ServingLedger:
    """Predict every row of the files, or of the files in folders, that states what was run.

    Args:
        paths: CSV files (perhaps gzipped) or folders of them; "shipped" for those that come with Meshwright.
        progress: called now and then with the share of rows done.
        execution: where rows are predicted; by default in this process.

    Raises:
        InputError: no such file, or one that is none of the known formats.
        MeshwrightError: a worker was killed, or the store's disk is full.
    """
    ledger, questions = _questions(paths)
    calls = [
        (reader.__name__, same)
        for reader, cases in questions.items()
        for same in _by_key(reader, cases).values()
    ]
    total, done = max(sum(map(len, questions.values())), 1), 0
    answers: dict[int, dict[str, Any]] = {}
    for number, found, _ in (execution or Execution(workers=1)).run(_plain, calls, _inputs):
        answers[number] = found
        done += len(calls[number][1])
        if progress:
            progress(done / total)
    for number, (_, same) in enumerate(calls):
        _enter(same, answers[number], ledger)
    return ledger


def _questions(paths: Iterable[Path]) -> tuple[ServingLedger, dict[ModuleType, list[ServingCase]]]:
    """Cases by reader, and a ledger of skipped rows."""
    ledger = ServingLedger()
    questions: dict[ModuleType, list[ServingCase]] = defaultdict(list)
    for given in paths:
        path = PUBLISHED if str(given) == SHIPPED else given
        for file in _files(path):
            _read(file, named=not path.is_dir(), questions=questions, ledger=ledger)
    return ledger, questions


def write_scenarios(paths: Iterable[Path], folder: Path) -> int:
    """Write the scenarios of all rows that are runs of scenarios, one file a row, and their traces.

    Args:
        paths: as in `evaluate`.
        folder: where they go; created.

    Returns:
        Number of scenarios.

    Raises:
        InputError: a file cannot be read or written.
    """
    count = 0
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for reader, cases in _questions(paths)[1].items():
            for case in cases if hasattr(reader, "scenario") else ():
                if getattr(case.question, "prefill", None) is not None:
                    continue
                name = re.sub(r"[^A-Za-z0-9._-]+", "-", case.case_id)
                if (data := reader.scenario(case.question)) is None:
                    continue
                if hasattr(reader, "trace"):
                    (folder / f"{name}.csv").write_text(reader.trace(case.question), encoding="utf-8")
                    data["workload"]["trace"]["path"] = f"{name}.csv"
                text = yaml.safe_dump({"title": case.case_id, **data}, sort_keys=False)
                (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
                count += 1
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", str(error.filename)) from None
    return count


def _by_key(reader: ModuleType, cases: Sequence[ServingCase]) -> dict[Any, list[ServingCase]]:
    """Cases that one call predicts, by their key."""
    groups: dict[Any, list[ServingCase]] = defaultdict(list)
    for case in cases:
        groups[reader.group_key(case.question)].append(case)
    return groups


def _inputs(reader: str, same: Sequence[ServingCase]) -> dict[str, Any]:
    """Inputs of the predictions of cases that share a key."""
    return {"ask": "validate", "reader": reader, "cases": digest_of([case.question for case in same])}


def _plain(reader: str, same: Sequence[ServingCase]) -> dict[str, Any]:
    """Predictions of cases that share a key as plain data, or the reason why there are none."""
    try:
        found = import_module(reader).predict([case.question for case in same])
    except MeshwrightError as reason:
        return {"problem": str(reason)}
    # NaN is no JSON; a metric that is not finite is not compared.
    rows = [{name: float(v) for name, v in row.items() if np.isfinite(v)} for row in found]
    return {"predicted": rows}


def _files(path: Path) -> Sequence[Path]:
    if not path.exists():
        raise InputError("no such file or folder", str(path))
    if not path.is_dir():
        return [path]
    return sorted([*path.glob("*.csv"), *path.glob("*.csv.gz"), *path.glob("*/meta.csv")])


def _read(
    path: Path, named: bool, questions: dict[ModuleType, list[ServingCase]], ledger: ServingLedger
) -> None:
    rows, header = _rows(path)
    readers = [reader for reader in READERS if all(name in header for name in reader.NEEDS)]
    if not readers:
        if named:
            raise InputError("is none of the known formats of measured serving runs", str(path))
        ledger.skipped.append((path.name, "not a file of measured runs that is known"))
        return
    for number, values in enumerate(rows, start=2):
        row = MeasuredRow(values, f"{path}: line {number}")
        try:
            questions[readers[0]].append(readers[0].read(row, path.name))
        except SkippedRow as reason:
            ledger.skipped.append(
                (row.text("case_id") or row.text("id") or f"{path.name}:{number}", str(reason))
            )


def _rows(path: Path) -> tuple[list[dict[str, str]], list[str]]:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise InputError(f"unpacks to more than {MOST_BYTES // 2**20} MiB", str(path))
        text = data.decode("utf-8-sig")
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise InputError(f"cannot be read ({error})", str(path)) from None
    reader = csv.DictReader(io.StringIO(text, newline=""))
    try:
        return list(reader), list(reader.fieldnames or [])
    except csv.Error as error:
        raise InputError(f"is not a readable CSV file ({error})", str(path)) from None


def _enter(cases: Sequence[ServingCase], answer: dict[str, Any], ledger: ServingLedger) -> None:
    """Add predictions, or the reason why there are none, to the ledger."""
    if "problem" in answer:
        ledger.skipped += [(case.case_id, answer["problem"]) for case in cases]
        return
    for case, predicted in zip(cases, answer["predicted"], strict=True):
        for metric, measured in case.measured.items():
            if measured > 0 and metric in predicted:
                ledger.entries.append(PredictedMetric(case, metric, predicted[metric], measured))
