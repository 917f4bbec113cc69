"""Fleets behind a router on a ladder of rates: one run predicts all stages of a ladder.

A stage's tokens per second are its output tokens over the time from its begin to its last token. Rates and
latencies of overloaded stages do not grow along the ladder, so a stage begins when the one before has ended;
prefix caches stay.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, Question, ServingCase
from meshwright.validation.serving.clients import run, scenario_of, statistics
from meshwright.validation.serving.collection import Collection

ROUTERS: dict[str, Any] = {
    "round-robin": "round-robin",
    "prefix-cache-affinity": {"kind": "scored", "prefix": 3.0, "queue": 2.0, "kv": 2.0},
}
"""Routers by the first word of a row's; weights are the defaults of llm-d's endpoint picker."""
SPAN = 512
"""Tokens of a prefix id in the trace."""
FORMAT = "mooncake"
DRAINED_S = 3000.0
"""Seconds between stages here, so that every stage has ended."""


@dataclass(frozen=True)
class FleetStage(Question):
    """One stage, and the run that it belongs to."""

    run: str
    """Source of the run, and its router."""
    router: str
    replicas: int
    groups: int
    prompts: int
    """Of one group."""
    share: float | None
    rate: float
    duration_s: float
    shared: float
    """Tokens of a group's system prompt."""
    own: float
    output: float

    @property
    def key(self) -> tuple[str]:
        """Stages with equal keys are predicted in one run."""
        return (self.run,)


def question(row: MeasuredRow, collection: Collection) -> FleetStage:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    router = row.text("router").split(" ")[0]
    if router not in ROUTERS:
        raise SkippedRow(f"router {row.text('router')!r} is not known")
    serving, run = collection.replica(row), f"{row.text('source')} {router}"
    names = "replicas", "prefix_groups", "prompts_per_group"
    replicas, groups, prompts = (row.count(name) for name in names)
    share = row.number("memory_share")
    return FleetStage(serving, run, router, replicas, groups, prompts, share, **collection.values(row))


def details(row: MeasuredRow, case: ServingCase) -> dict[str, Any]:
    """Routers are engines of their own in summaries."""
    return {"engine": f"{case.engine}, {case.question.router}"}


def requests_of(stages: Sequence[FleetStage]) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Requests of a ladder as rows of a trace, and the stage of each; prompts return in shuffled order."""
    random = np.random.default_rng(1)
    rows, numbers, start, sent = [], [], 0.0, 0
    first = stages[0]
    order = random.permutation(first.groups * first.prompts)
    tokens = int(first.shared) + int(first.own)
    common = int(first.shared) // SPAN
    for number, stage in enumerate(stages):
        gaps = random.exponential(size=max(round(stage.rate * stage.duration_s), 1))
        for time in start + stage.duration_s * np.cumsum(gaps) / gaps.sum():
            prompt = int(order[sent % len(order)])
            group = prompt // first.prompts
            ids = [group * SPAN + span for span in range(common)]
            base = (first.groups + prompt) * SPAN
            ids += [base + span for span in range(tokens // SPAN - common)]
            lengths = {"input_length": tokens, "output_length": int(stage.output)}
            rows.append({"timestamp": time * 1e3, **lengths, "hash_ids": ids})
            numbers.append(number)
            sent += 1
        start += stage.duration_s + DRAINED_S
    return rows, np.array(numbers)


def scenario(stage: FleetStage) -> dict[str, Any]:
    """The run of a ladder as a serving scenario that reads `requests.jsonl`."""
    options: dict[str, Any] = {"max_context": 16384}
    if stage.share:
        options["memory_share"] = stage.share
    trace = {"format": FORMAT, "path": "requests.jsonl"}
    workload = {"kind": "serving", "requests": 1_000_000, "trace": trace}
    router = ROUTERS[stage.router]
    return scenario_of(stage.serving, workload, replicas=stage.replicas, router=router, options=options)


def predict(questions: Sequence[FleetStage]) -> list[dict[str, float]]:
    """Predicted columns of the stages of one ladder."""
    stages = sorted(set(questions), key=lambda stage: stage.rate)
    rows, numbers = requests_of(stages)
    with TemporaryDirectory() as folder:
        lines = "\n".join(json.dumps(row) for row in rows)
        (Path(folder) / "requests.jsonl").write_text(lines + "\n", encoding="utf-8")
        columns = run(scenario(stages[0]), folder=Path(folder)).records.columns()
    starts = np.cumsum([0.0, *(stage.duration_s + DRAINED_S for stage in stages)])
    predicted: dict[FleetStage, dict[str, float]] = {}
    for number, stage in enumerate(stages):
        inside = numbers[columns["serial"]] == number
        ttft = (columns["first_s"] - columns["arrival_s"])[inside]
        span = float(columns["last_s"][inside].max() - starts[number])
        rate = float(columns["output"][inside].sum()) / span
        predicted[stage] = {"fleet_out_tok_s": rate, **statistics("ttft_s", ttft, 1.0, (50, 90))}
    return [predicted[question] for question in questions]
