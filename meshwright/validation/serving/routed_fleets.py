"""Fleets behind a router on a ladder of rates (`routed_fleets.csv`): one run predicts all stages of a ladder.

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
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from meshwright.validation.serving.clients import cluster_key, pool_keys, run

NEEDS = ("replicas", "router", "stage_rate_s", "prefix_groups", "fleet_out_tok_s")
MEASURED = ("fleet_out_tok_s", "ttft_s_mean", "ttft_s_p50", "ttft_s_p90")
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
class FleetStage:
    """One stage, and the run that it belongs to."""

    serving: Setup
    run: str
    """Source of the run, and its router."""
    router: str
    replicas: int
    rate: float
    duration_s: float
    groups: int
    prompts: int
    """Of one group."""
    shared: int
    """Tokens of a group's system prompt."""
    own: int
    output: int
    share: float | None


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row leaves open what was run.
    """
    router = row.text("router").split(" ")[0]
    if router not in ROUTERS:
        raise SkippedRow(f"router {row.text('router')!r} is not known")
    found = setup(row, row.text("engine"), "", {"tensor": row.count("tp")}, row.text("precision"))
    question = FleetStage(
        found,
        f"{row.text('source')} {router}",
        router,
        row.count("replicas"),
        row.need("stage_rate_s"),
        row.need("duration_s"),
        row.count("prefix_groups"),
        row.count("prompts_per_group"),
        int(row.need("system_prompt_tokens")),
        int(row.need("question_tokens")),
        int(row.need("output_tokens")),
        row.number("memory_share"),
    )
    flagged = bool(row.text("flag"))
    engine = f"{found.engine.name}, {router}"
    return ServingCase(
        row.text("case_id"), file, engine, row.text("gpu"), row.measured(*MEASURED), flagged, "", question
    )


def requests_of(stages: Sequence[FleetStage]) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Requests of a ladder as rows of a trace, and the stage of each; prompts return in shuffled order."""
    random = np.random.default_rng(1)
    rows, numbers, start, sent = [], [], 0.0, 0
    first = stages[0]
    order = random.permutation(first.groups * first.prompts)
    tokens = first.shared + first.own
    common = first.shared // SPAN
    for number, stage in enumerate(stages):
        gaps = random.exponential(size=max(round(stage.rate * stage.duration_s), 1))
        for time in start + stage.duration_s * np.cumsum(gaps) / gaps.sum():
            prompt = int(order[sent % len(order)])
            group = prompt // first.prompts
            ids = [group * SPAN + one for one in range(common)]
            base = (first.groups + prompt) * SPAN
            ids += [base + one for one in range(tokens // SPAN - common)]
            lengths = {"input_length": tokens, "output_length": stage.output}
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
    return {
        "model": stage.serving.model.name,
        "cluster": cluster_key(stage.serving),
        "workload": {
            "kind": "serving",
            "requests": 1_000_000,
            "trace": {"format": FORMAT, "path": "requests.jsonl"},
        },
        "deployment": {
            **pool_keys(stage.serving),
            "replicas": stage.replicas,
            "router": ROUTERS[stage.router],
            "options": options,
        },
    }


def predict(questions: Sequence[FleetStage]) -> list[dict[str, float]]:
    """Predicted columns of the stages of one ladder."""
    stages = sorted(set(questions), key=lambda one: one.rate)
    rows, numbers = requests_of(stages)
    with TemporaryDirectory() as folder:
        lines = "\n".join(json.dumps(row) for row in rows)
        (Path(folder) / "requests.jsonl").write_text(lines + "\n", encoding="utf-8")
        columns = run(scenario(stages[0]), folder=Path(folder)).records.columns()
    starts = np.cumsum([0.0, *(stage.duration_s + DRAINED_S for stage in stages)])
    found: dict[FleetStage, dict[str, float]] = {}
    for number, stage in enumerate(stages):
        inside = numbers[columns["serial"]] == number
        ttft = (columns["first_s"] - columns["arrival_s"])[inside]
        span = float(columns["last_s"][inside].max() - starts[number])
        found[stage] = {
            "fleet_out_tok_s": float(columns["output"][inside].sum()) / span,
            "ttft_s_mean": float(ttft.mean()),
            "ttft_s_p50": float(np.percentile(ttft, 50)),
            "ttft_s_p90": float(np.percentile(ttft, 90)),
        }
    return [found[question] for question in questions]


def group_key(question: FleetStage) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return (question.run,)
