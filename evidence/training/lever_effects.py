"""Measured and predicted effects of single levers: pairs of published runs that differ in one choice.

python -m benchmarks.lever_effects [RUNS.csv ...]

Two runs are a pair if they have one question (model, devices, batch, format, framework) and their plans
differ in one field, with the levers that recipe and release choose. Degrees and micro batch are no levers.
The effect is the speed of one run over that of the other, less 1. Containers may differ too: a pair of two
releases measures more than its lever.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import NamedTuple

from evidence.command import command
from meshwright.validation.ledger import PredictedCase, evaluate
from meshwright.validation.rows import published_files

LAYOUT = (
    "tensor",
    "pipeline",
    "virtual_pipeline",
    "context",
    "data",
    "expert",
    "expert_tensor",
    "micro_batch",
)
LEAST = 0.02
"""Measured effects below it are within the spread of repeated runs."""


class Effect(NamedTuple):
    """The effect of one field: from a value to another, measured and predicted."""

    field: str
    before: str
    after: str
    measured: float
    predicted: float
    case_id: str
    slow_id: str = ""
    """The slower run; ``case_id`` is the faster one."""

    @property
    def right(self) -> bool:
        """Whether the predicted effect has the sign of the measured one."""
        return self.measured * self.predicted > 0

    @property
    def error(self) -> float:
        """Error of the predicted effect, as a share of the measured one."""
        return abs(self.predicted / self.measured - 1)

    def line(self) -> str:
        """The effect in one line."""
        change = f"{self.field}: {self.before} to {self.after}"
        return (
            f"{change:60s} measured {self.measured:+7.1%}, predicted {self.predicted:+7.1%}  {self.case_id}"
        )


def stated_levers(entry: PredictedCase) -> dict[str, object]:
    """All plan fields of a run, with the levers that its recipe and release choose."""
    case = entry.case
    plan = case.plan
    levers = asdict(case.setting.of(plan).choices)
    fields = {name: value for name, value in plan.model_dump().items() if name not in levers}
    levers["graphs"] = case.setting.of(plan).graphs  # by the host, where the release asks for that
    if plan.recompute != "selective":
        levers["recompute_modules"] = None
    return fields | levers


def effects(entries: Iterable[PredictedCase]) -> Iterator[Effect]:
    """Effects of single fields that were measured, the slower value first."""
    questions: dict[str, list[PredictedCase]] = defaultdict(list)
    for entry in entries:
        setting = entry.case.setting
        if entry.case.measured_step_s is not None:
            question = setting.model.name, setting.cluster, setting.training, setting.framework.name
            questions[repr(question)].append(entry)
    for group in questions.values():
        for pair in combinations(group, 2):
            slow, fast = sorted(pair, key=lambda entry: -(entry.case.measured_step_s or 0.0))
            before, after = stated_levers(slow), stated_levers(fast)
            changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
            gain = (slow.case.measured_step_s or 0.0) / (fast.case.measured_step_s or 1.0) - 1
            if len(changed) == 1 and changed[0] not in LAYOUT and gain > LEAST:
                old, new = (_words(side.get(changed[0])) for side in (before, after))
                predicted = slow.predicted_step_s / fast.predicted_step_s - 1
                names = fast.case.case_id, slow.case.case_id
                yield Effect(changed[0], old, new, gain, predicted, *names)


def _words(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


@command
def main(*files: Path) -> None:
    """Print every effect and the summary."""
    entries = evaluate(files or published_files()).entries
    changes = sorted(effects(entries), key=lambda change: (change.field, change.before, change.case_id))
    for change in changes:
        print(change.line())
    if changes:
        right = sum(change.right for change in changes)
        middle = median(change.error for change in changes)
        print(f"{len(changes)} effects above {LEAST:.0%}: sign right in {right / len(changes):.0%}")
        print(f"  size off by {middle:.0%} of the effect (median)")
