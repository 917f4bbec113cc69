"""Fleets behind a router on a ladder of rates: one run predicts all stages of a ladder.

A stage's tokens per second are its output tokens over the time from its begin to its last token. Rates and
latencies of overloaded stages do not grow along the ladder, so a stage begins when the one before has ended;
prefix caches stay. A stage that is not measured sends every prompt once before the ladder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evidence.serving.case import MeasuredRow, ReplicaQuestion, ServingCase
from evidence.serving.collection import Collection
from evidence.serving.served_run import ServedRun, result_of, scenario_of, statistics, traced
from meshwright.validation.rows import SkippedRow

ROUTERS: dict[str, Any] = {
    "round-robin": "round-robin",
    "prefix-cache-affinity": "llm-d",
}
"""Routers by the first word of a row's. The affinity arm runs llm-d's prefix-cache-affinity-filter and
token-load-scorer (benchmark-results/vllm-qwen3-32b-h100/README.md of its guide optimized-baseline)."""
WEIGHTED = "llm-d/llm-d@021723b8"
"""Report whose guide still had the weighted scorers (its README, Overview; llm-d pull request 1651, which
replaced them and reports fewer tokens/s)."""
SCORERS: dict[str, Any] = {"kind": "scored", "prefix": 3, "queue": 2, "kv": 2, "cold": 2, "index": "sent"}
"""The weighted scorers (guides/optimized-baseline/router/optimized-baseline.values.yaml before the pull
request)."""
GUIDE_SHARE = 0.95
"""Share of memory of rows without one: the guide's servers (guides/optimized-baseline/modelserver/gpu/vllm/
base/patch-vllm.yaml, --gpu-memory-utilization, in five of six stored versions with Qwen3-32B)."""
SPAN = 16
"""Tokens of a prefix id in the trace, as many as vLLM's blocks hold: ids of 512 leave 368 of the 6,000 tokens
of a system prompt to each of its prompts, a tenth of a replica's KV room."""
WARM_UP = 15.0, 50.0
"""Requests/s and seconds of the stage before the ladder (llm-d@1eb1d992,
guides/optimized-baseline/benchmark-templates/guide.yaml: 750 requests)."""
DRAINED_S = 3000.0
"""Seconds between stages here, so that every stage has ended."""


@dataclass(frozen=True)
class FleetStage(ReplicaQuestion):
    """One stage of a ladder."""

    ladder: str
    """Source of the ladder, and its router."""
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
    own_tokens: float
    output: float

    @property
    def key(self) -> tuple[str]:  # type: ignore[override]
        """Stages with equal keys are predicted in one run."""
        return (self.ladder,)

    def run(self) -> ServedRun:
        """The stage alone, after the one that fills prefix caches."""
        return ladder([self])


def question(row: MeasuredRow, collection: Collection) -> FleetStage:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    router = row.text("router").split(" ")[0]
    if router not in ROUTERS:
        raise SkippedRow(f"router {row.text('router')!r} is not known")
    serving, name = collection.replica(row), f"{row.text('source')} {router}"
    replicas, groups, prompts = map(row.count, ("replicas", "prefix_groups", "prompts_per_group"))
    share = row.number("memory_share")
    return FleetStage(serving, name, router, replicas, groups, prompts, share, **collection.values(row))


def details(row: MeasuredRow, case: ServingCase) -> dict[str, Any]:
    """Routers are engines of their own in summaries."""
    return {"engine": f"{case.engine}, {case.question.router}"}


def ladder(stages: Sequence[FleetStage]) -> ServedRun:
    """The run of stages one after the other; prompts return in shuffled order."""
    random = np.random.default_rng(1)
    first, rows, start = stages[0], list[str](), 0.0
    order = random.permutation(first.groups * first.prompts).tolist()
    tokens, common = int(first.shared) + int(first.own_tokens), int(first.shared) // SPAN
    spans = tokens // SPAN
    for rate, duration_s in (WARM_UP, *((stage.rate, stage.duration_s) for stage in stages)):
        gaps = random.exponential(size=max(round(rate * duration_s), 1))
        for time in start + duration_s * np.cumsum(gaps) / gaps.sum():
            prompt = order[len(rows) % len(order)]
            group, suffix = prompt // first.prompts * spans, (first.groups + prompt) * spans
            ids = [*range(group, group + common), *range(suffix, suffix + spans - common)]
            row = {"chat_id": len(rows), "timestamp": time, "hash_ids": ids}
            row |= {"input_length": tokens, "output_length": int(first.output)}
            rows.append(json.dumps(row) + "\n")
        start += duration_s + DRAINED_S
    options: dict[str, Any] = {"max_context": 16384, "memory_share": first.share or GUIDE_SHARE}
    router = ROUTERS[first.router]
    if router == "llm-d" and first.ladder.startswith(WEIGHTED):
        router = SCORERS
    fleet = {"replicas": first.replicas, "router": router, "options": options}
    workload = traced(1_000_000, "requests.jsonl", "bailian")
    return ServedRun(scenario_of(first.serving, workload, **fleet), "".join(rows))


def predict(questions: Sequence[FleetStage]) -> list[dict[str, float]]:
    """Predicted columns of the stages of one ladder."""
    stages = sorted(set(questions), key=lambda stage: stage.rate)
    columns = result_of(ladder(stages)).records.columns()
    predicted: dict[FleetStage, dict[str, float]] = {}
    start = WARM_UP[1] + DRAINED_S
    for stage in stages:
        end = start + stage.duration_s + DRAINED_S
        inside = (columns["arrival_s"] >= start) & (columns["arrival_s"] < end)
        ttft = (columns["first_s"] - columns["arrival_s"])[inside]
        span = float(columns["last_s"][inside].max() - start)
        rate = float(columns["output"][inside].sum()) / span
        predicted[stage] = {"out_tok_s": rate, **statistics("ttft", ttft)}
        start = end
    return [predicted[question] for question in questions]
