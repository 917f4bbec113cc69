"""Seconds to start an engine and to wake a sleeping one (`start_up.csv`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hwmodels.cluster import clusters
from hwmodels.loading import build, read_mapping
from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase
from meshwright.validation.serving.names import find_format, find_model
from simulator.ops.counts import model_parameters
from simulator.serving.question.start import StagedStart
from simulator.serving.starts import Loaded, make_source, stages

FILE = Path(__file__).with_name("start_up.yaml")
NEEDS = ("how", "stage", "seconds", "tp")
SOURCES = {"start": "disk", "sleep level 1": "sleep-1", "sleep level 2": "sleep-2"}
BYTES = {"bf16": 2.0, "fp8": 1.0}


@dataclass(frozen=True)
class StartUp:
    """The configuration of one row."""

    start: StagedStart
    replica: Loaded


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


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row is of a machine or a step that is not predicted.
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
    configuration = f"{row.text('model')} {row.text('gpu')} {source}"
    measured = {f"{source}_s": row.need("seconds")}
    engine = row.text("engine")
    return ServingCase(
        row.text("id"),
        file,
        engine,
        row.text("gpu"),
        measured,
        False,
        configuration,
        StartUp(start, replica),
    )


def predict(questions: Sequence[StartUp]) -> list[dict[str, float]]:
    """Predicted columns of rows."""
    found = []
    for one in questions:
        source = make_source(one.start, "start")
        found.append({f"{source.name}_s": sum(stages(one.start, source, one.replica, True).values())})
    return found


def group_key(question: StartUp) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.replica.cluster.name, question.replica.devices
