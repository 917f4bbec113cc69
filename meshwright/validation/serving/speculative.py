"""Speculative decoding at batch 1 with measured acceptance (`speculative.csv`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from hwmodels.loading import build, read_mapping
from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from simulator.serving.question.speculation import Speculation
from simulator.serving.steady.speculative_step import speed_up

FILE = Path(__file__).with_name("speculative.yaml")
NEEDS = ("method", "mean_accepted_tokens_per_step", "speedup_overall")
MEASURED = ("speedup_overall",)
KEYS = 512
"""Mean context of the benchmark's conversations (assumed)."""


@dataclass(frozen=True)
class Speculative:
    """The configuration of one row."""

    serving: Setup
    method: Speculation
    accepted: float


@cache
def _methods() -> dict[str, Speculation]:
    """Published methods by their names in small letters."""
    return {
        name: build(Speculation, values, f"{FILE}: {name}") for name, values in read_mapping(FILE).items()
    }


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row leaves open what was run.
    """
    found = setup(row, "static", "", {}, row.text("precision", "fp16"))
    method = row.text("method")
    speculation = _methods().get(re.sub(r"[^a-z0-9\[\]]", "", method.lower()))
    if speculation is None:
        raise SkippedRow(f"speculation method {method!r} is not known")
    question = Speculative(found, speculation, row.need("mean_accepted_tokens_per_step"))
    name = f"speculative-{row.text('model').split('/')[-1]}-{method}"
    return ServingCase(
        name, file, found.engine.name, row.text("gpu"), row.measured(*MEASURED), False, "", question
    )


def predict(questions: Sequence[Speculative]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    return [{"speedup_overall": speed_up(one.serving, one.method, one.accepted, KEYS)} for one in questions]


def group_key(question: Speculative) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.serving.key
