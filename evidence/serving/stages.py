"""Stages of constant-rate load on vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from core.errors import InputError
from evidence.serving.case import MeasuredRow, ReplicaQuestion, ServingCase
from evidence.serving.collection import Collection
from evidence.serving.served_run import (
    ServedRun,
    client_defaults,
    scenario_of,
    trace_text,
    traced,
)

WARM_UP = 0.1
"""Share of the requests that is left out while the load builds up."""
MOST_REQUESTS = 1_000_000
"""Of a trace, which ends before."""
MOST_ARRIVALS = 1500
"""Of one stage: more change no mean by 1 %."""


@dataclass(frozen=True)
class Stage(ReplicaQuestion):
    """The configuration of one row."""

    rates: tuple[float, ...]
    durations: tuple[float, ...]
    shared: float
    """Prompt tokens of the system prompt, which the prefix cache holds."""
    own_tokens: float
    output: float
    budget: float
    sequences: float
    share: float
    users: float
    """The load generator makes one prompt a user and sends it again and again (inference-perf,
    shared_prefix_datagen.py)."""

    @property
    def repeats(self) -> bool:
        """Whether the prefix cache holds whole prompts after the first of each user."""
        return self.shared > 0 and self.users > 0

    def run(self) -> ServedRun:
        """See `Question`. The prefix cache holds what a user repeats."""
        options = {
            "max_sequences": int(self.sequences),
            "token_budget": int(self.budget),
            "memory_share": self.share,
            "max_context": 1 << (int(self.shared + self.own_tokens + self.output) + 1).bit_length(),
        }
        users = {"users": int(self.users), "user_gap": client_defaults()["gap"]} if self.users else {}
        scenario = scenario_of(self.serving, traced(MOST_REQUESTS, **users), options=options)
        arrivals = self._arrivals()
        tokens, count = int(self.shared + self.own_tokens), len(arrivals)
        repeated = tokens if self.repeats else int(self.shared)
        first = min(int(self.users), count)
        hits = [int(self.shared)] * first + [repeated] * (count - first)
        trace = trace_text(arrivals, [tokens] * count, [int(self.output)] * count, hits)
        return ServedRun(scenario, trace, left_out=WARM_UP)

    def _arrivals(self) -> list[float]:
        """Exponential gaps, rescaled to each stage's duration, as the load generator draws them; s."""
        random = np.random.default_rng(1)
        times, start = [], 0.0
        for rate, duration in zip(self.rates, self.durations, strict=True):
            seconds = min(duration if duration > 1.0 else np.inf, MOST_ARRIVALS / rate)
            gaps = random.exponential(size=max(round(rate * seconds), 1))
            times.append(start + seconds * np.cumsum(gaps) / gaps.sum())
            start += seconds
        return np.concatenate(times).tolist()


def question(row: MeasuredRow, collection: Collection) -> Stage:
    """The question of a row.

    Raises:
        SkippedRow: the row leaves open what was run.
    """
    rates, durations = _numbers(row, "rate_req_s"), _numbers(row, "duration_s")
    serving, shared = collection.replica(row), row.number("system_prompt_tokens") or 0.0
    engine, device = serving.engine, serving.cluster.device
    caches = row.text("prefix_caching") == "on"
    return Stage(
        serving=serving,
        rates=rates,
        durations=durations if len(durations) == len(rates) else tuple(1.0 for _ in rates),
        shared=shared if caches else 0.0,
        own_tokens=row.need("question_tokens") + (0.0 if caches else shared),
        output=row.need("output_tokens"),
        budget=row.number("max_num_batched_tokens") or float(engine.token_budget(device)),
        sequences=row.number("max_num_seqs") or float(engine.sequence_limit(device)),
        share=row.number("gpu_memory_utilization") or 0.9,
        users=(row.number("num_system_prompts") or 0.0) * (row.number("users_per_system_prompt") or 0.0),
    )


def details(row: MeasuredRow, case: ServingCase) -> dict[str, Any]:
    """Whole runs repeat under other settings of memory, which their experiments' names begin with."""
    all_stages = row.text("stage") == "all"
    return {"group": f"{row.text('experiment').split('-', 1)[-1]} all"} if all_stages else {}


def _numbers(row: MeasuredRow, name: str) -> tuple[float, ...]:
    """Numbers of a cell as ``6+12``.

    Raises:
        InputError: one of them is none, or not positive.
    """
    parts = row.text(name).split("+") if row.text(name) else []
    numbers = tuple(MeasuredRow({name: part}, row.where).number(name) or 0.0 for part in parts)
    if parts and min(numbers) <= 0:
        raise InputError(f"column {name!r}: positive numbers are needed, found {row.text(name)!r}", row.where)
    return numbers
