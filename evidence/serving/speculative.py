"""Speculative decoding at batch 1 with measured acceptance."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from core.loading import build, read_mapping
from evidence.serving.case import MeasuredRow, ReplicaQuestion, ServingCase
from evidence.serving.collection import Collection
from meshwright.validation.rows import SkippedRow
from simulator.serving.question.speculation import Speculation
from simulator.serving.steady.speculative_step import speed_up

FILE = Path(__file__).with_name("speculative.yaml")
KEYS = 512
"""Mean context of the benchmark's conversations (assumed)."""


@dataclass(frozen=True)
class Speculative(ReplicaQuestion):
    """The configuration of one row."""

    method: Speculation
    accepted: float


@cache
def _methods() -> dict[str, Any]:
    return read_mapping(FILE)


def question(row: MeasuredRow, collection: Collection) -> Speculative:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    serving, method = collection.replica(row), row.text("method")
    keys = _methods().get(re.sub(r"[^a-z0-9\[\]]", "", method.lower()))
    if keys is None:
        raise SkippedRow(f"speculation method {method!r} is not known")
    return Speculative(serving, build(Speculation, keys, f"{FILE}: {method}"), **collection.values(row))


def details(row: MeasuredRow, case: ServingCase) -> dict[str, Any]:
    """The name of a row."""
    return {"case_id": f"speculative-{row.text('model').split('/')[-1]}-{row.text('method')}"}


def predict(questions: Sequence[Speculative]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    return [{"speedup_overall": speed_up(row.serving, row.method, row.accepted, KEYS)} for row in questions]
