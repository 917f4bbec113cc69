"""Predicted against measured serving runs: every file of a folder, every metric, errors by group."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from core.errors import InputError, MeshwrightError
from evidence.serving.case import MeasuredRow, ServingCase
from evidence.serving.collection import collections, predictions, read_case
from meshwright.validation.rows import SkippedRow
from planner.execution import Execution
from planner.store import digest_of

MOST_BYTES = 2**26
"""Of a file of measured runs, unpacked; a row has about 0.5 kB."""
SHIPPED = "shipped"
PUBLISHED = Path(__file__).with_name("published")
"""Rows of the source tree: TensorRT-LLM's published tables, and latencies of weight-only formats from a
pull request of vLLM (both Apache-2.0); their source is in each row."""


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
        summaries = []
        for (file, engine, gpu, metric, flagged), groups in sorted(by.items()):
            signed = np.array([float(np.median(errors)) for errors in groups.values()])
            size = np.abs(signed)
            median, p90 = float(np.median(size)), float(np.percentile(size, 90))
            bias = float(np.median(signed))
            summaries.append(
                MetricSummary(file, engine, gpu, metric, flagged, len(signed), median, p90, bias)
            )
        return summaries


def evaluate(
    paths: Iterable[Path],
    progress: Callable[[float], None] | None = None,
    execution: Execution | None = None,
    only: Callable[[ServingCase], bool] = lambda case: True,
) -> ServingLedger:
    """Predict every row of the files, or of the files in folders, that states what was run.

    Args:
        paths: CSV files (perhaps gzipped) or folders of them; "shipped" for those of the source tree.
        progress: called now and then with the share of rows done.
        execution: where rows are predicted; by default in this process.
        only: which rows are predicted.

    Raises:
        InputError: no such file, or one that is none of the known formats.
        MeshwrightError: a worker was killed, or the store's disk is full.
    """
    ledger, questions = _questions(paths)
    calls = [(name, same) for name, cases in questions.items() for same in _by_key(filter(only, cases))]
    total, done = max(sum(map(len, questions.values())), 1), 0
    answers: dict[int, dict[str, Any]] = {}
    for number, answer, _ in (execution or Execution(workers=1)).run(_plain, calls, _inputs):
        answers[number] = answer
        done += len(calls[number][1])
        if progress:
            progress(done / total)
    for number, (name, same) in enumerate(calls):
        _enter(same, answers[number], ledger, collections()[name].figures)
    return ledger


def _questions(paths: Iterable[Path]) -> tuple[ServingLedger, dict[str, list[ServingCase]]]:
    """Cases by collection, and a ledger of skipped rows."""
    ledger = ServingLedger()
    questions: dict[str, list[ServingCase]] = defaultdict(list)
    for named in paths:
        path = PUBLISHED if str(named) == SHIPPED else named
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
        for case in chain.from_iterable(_questions(paths)[1].values()):
            if (run := case.question.run()) is None:
                continue
            name = re.sub(r"[^A-Za-z0-9._-]+", "-", case.case_id)
            data: dict[str, Any] = {"title": case.case_id, **run.scenario}
            if run.trace:
                trace = data["workload"]["trace"]
                trace["path"] = f"{name}{Path(trace['path']).suffix}"
                (folder / trace["path"]).write_text(run.trace, encoding="utf-8")
            text = yaml.safe_dump(data, sort_keys=False)
            (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
            count += 1
    except OSError as error:
        raise InputError(f"cannot be written ({error.strerror})", str(error.filename)) from None
    return count


def _by_key(cases: Iterable[ServingCase]) -> list[list[ServingCase]]:
    """Cases of a collection that one call predicts."""
    groups: dict[Any, list[ServingCase]] = defaultdict(list)
    for case in cases:
        groups[case.question.key].append(case)
    return list(groups.values())


def _inputs(collection: str, same: Sequence[ServingCase]) -> dict[str, Any]:
    """Inputs of the predictions of cases that share a key."""
    questions = digest_of([case.question for case in same])
    return {"ask": "validate", "collection": collection, "cases": questions}


def _plain(collection: str, same: Sequence[ServingCase]) -> dict[str, Any]:
    """Predictions of cases that share a key as plain data, or the reason why there are none."""
    try:
        predicted = predictions(collection, [case.question for case in same])
    except MeshwrightError as reason:
        return {"problem": str(reason)}
    # NaN is no JSON; a metric that is not finite is not compared.
    rows = [{name: float(v) for name, v in row.items() if np.isfinite(v)} for row in predicted]
    return {"predicted": rows}


def _files(path: Path) -> Sequence[Path]:
    if not path.exists():
        raise InputError("no such file or folder", str(path))
    if not path.is_dir():
        return [path]
    return sorted([*path.glob("*.csv"), *path.glob("*.csv.gz"), *path.glob("*/meta.csv")])


def _read(path: Path, named: bool, questions: dict[str, list[ServingCase]], ledger: ServingLedger) -> None:
    rows, header = _rows(path)
    fits = (name for name, collection in collections().items() if set(collection.needs) <= set(header))
    if (collection := next(fits, None)) is None:
        if named:
            raise InputError("is none of the known formats of measured serving runs", str(path))
        ledger.skipped.append((path.name, "not a file of measured runs that is known"))
        return
    for number, values in enumerate(rows, start=2):
        row = MeasuredRow(values, f"{path}: line {number}")
        try:
            questions[collection].append(read_case(collection, row, path.name))
        except SkippedRow as reason:
            ledger.skipped.append((row.name, str(reason)))


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


def _enter(
    cases: Sequence[ServingCase], answer: dict[str, Any], ledger: ServingLedger, names: Mapping[str, str]
) -> None:
    """Add predictions, or the reason why there are none, to the ledger."""
    if "problem" in answer:
        ledger.skipped += [(case.case_id, answer["problem"]) for case in cases]
        return
    for case, predicted in zip(cases, answer["predicted"], strict=True):
        for metric, measured in case.measured.items():
            value = predicted.get(names.get(metric, metric))
            if measured > 0 and value is not None:
                ledger.entries.append(PredictedMetric(case, metric, value, measured))
