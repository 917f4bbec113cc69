"""Seconds to start an engine and to wake a sleeping one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from core.loading import build, read_mapping
from evidence.serving.case import MeasuredRow, Question, ServingCase
from evidence.serving.collection import Collection
from evidence.serving.names import find_format, find_model
from hwmodels.cluster import clusters
from meshwright.validation.rows import SkippedRow
from simulator.ops.counts import model_parameters
from simulator.serving.question.start import StagedStart
from simulator.serving.starts import Loaded, make_source, stages

FILE = Path(__file__).with_name("start_up.yaml")
SOURCES = {"start": "disk", "sleep level 1": "sleep-1", "sleep level 2": "sleep-2"}
BYTES = {"bf16": 2.0, "fp8": 1.0}


@dataclass(frozen=True)
class StartUp(Question):
    """The configuration of one row."""

    start: StagedStart
    replica: Loaded
    source: str
    """Where the weights lie: disk, sleep-1 or sleep-2."""

    @property
    def key(self) -> tuple[str, int]:  # type: ignore[override]
        """See `Question`."""
        return self.replica.cluster.name, self.replica.devices


@cache
def _facts() -> dict[str, Any]:
    return read_mapping(FILE)


def _bytes(name: str) -> float:
    """Bytes of a model's weights."""
    stated = _facts()["weights"].get(name.lower())
    if stated:
        return float(stated)
    width = BYTES[find_format(name.rpartition("-")[2], "bf16") if name.endswith("FP8") else "bf16"]
    return width * model_parameters(find_model(name))


def question(row: MeasuredRow, collection: Collection) -> StartUp:
    """The question of a row.

    Raises:
        SkippedRow: the row is of a machine or a step that is not predicted.
    """
    machine = _facts()["machines"].get(row.text("gpu"))
    source = next((name for how, name in SOURCES.items() if row.text("how").startswith(how)), None)
    if machine is None or source is None:
        raise SkippedRow(f"no start {row.text('how')!r} on {row.text('gpu')!r}")
    if row.text("stage") == "sleep":
        raise SkippedRow("going to sleep is not predicted")
    options = {"rate": machine["disk"]} if source in ("disk", "sleep-2") else {}
    start = build(StagedStart, {"from": source, "options": options}, row.where)
    devices = row.count("tp")
    replica = Loaded(clusters.get(machine["cluster"]), devices, _bytes(row.text("model")) / devices)
    return StartUp(start, replica, source)


def details(row: MeasuredRow, case: ServingCase) -> dict[str, Any]:
    """The measured seconds of a row, by the source of the weights."""
    return {"measured": {f"{case.question.source}_s": row.need("seconds")}}


def predict(questions: Sequence[StartUp]) -> list[dict[str, float]]:
    """Predicted columns of rows."""
    predicted = []
    for row in questions:
        source = make_source(row.start, "start")
        predicted.append({f"{source.name}_s": sum(stages(row.start, source, row.replica, True).values())})
    return predicted
