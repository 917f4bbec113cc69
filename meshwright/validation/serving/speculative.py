"""Speculative decoding at batch 1 with measured acceptance (`speculative.csv`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup, table_of
from simulator.serving.steps.speculation import draft_cost, speed_up

NEEDS = ("method", "mean_accepted_tokens_per_step", "speedup_overall")
MEASURED = ("speedup_overall",)
KEYS = 512.0
"""Mean context of the benchmark's conversations (assumed)."""


@dataclass(frozen=True)
class Speculative:
    """The configuration of one row."""

    serving: Setup
    method: str
    accepted: float


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row leaves open what was run.
    """
    found = setup(row, "static", "", {}, row.text("precision", "fp16"))
    method = row.text("method")
    if draft_cost(method) is None:
        raise SkippedRow(f"speculation method {method!r} is not known")
    question = Speculative(found, method, row.need("mean_accepted_tokens_per_step"))
    name = f"speculative-{row.text('model').split('/')[-1]}-{method}"
    return ServingCase(
        name, file, found.engine.name, row.text("gpu"), row.measured(*MEASURED), False, "", question
    )


def predict(questions: Sequence[Speculative]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    table = table_of(questions[0].serving, 256, 1, 4096)
    return [{"speedup_overall": speed_up(table, one.method, one.accepted, KEYS)} for one in questions]


def group_key(question: Speculative) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.serving.key
