"""Stages of constant-rate load on vLLM (`open_loop_stages.csv`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwmodels.errors import InputError
from meshwright.validation.rows import SkippedRow
from meshwright.validation.serving.case import MeasuredRow, ServingCase, Setup, setup
from meshwright.validation.serving.clients import (
    client_defaults,
    cluster_key,
    latencies,
    pool_keys,
    run_trace,
    trace_text,
    traced,
)
from simulator.serving.steady.kinds import kv_tokens, memory_of, table_of
from simulator.serving.steady.steady import Limits, Load, steady_state

NEEDS = ("stage", "rate_req_s", "system_prompt_tokens", "question_tokens", "output_tokens")
MEASURED = ("ttft_ms_mean", "itl_ms_mean", "e2e_ms_mean")
WARM_UP = 0.1
"""Share of the requests that is left out while the load builds up."""
MOST_REQUESTS = 1_000_000
"""Of a trace, which ends before."""
MOST_ARRIVALS = 1500
"""Of one stage: more change no mean by 1 %."""


@dataclass(frozen=True)
class Stage:
    """The configuration of one row."""

    serving: Setup
    rates: tuple[float, ...]
    durations: tuple[float, ...]
    shared: float
    """Prompt tokens of the system prompt, which the prefix cache holds."""
    own: float
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


def read(row: MeasuredRow, file: str) -> ServingCase:
    """The case of one row.

    Raises:
        Skipped: the row leaves open what was run.
    """
    rates = _numbers(row, "rate_req_s")
    if not rates:
        raise SkippedRow("rate not stated")
    durations = _numbers(row, "duration_s") or tuple(1.0 for _ in rates)
    data = row.count("dp")
    found = setup(
        row,
        row.text("engine", "vllm"),
        row.text("engine_version"),
        {"tensor": row.count("tp"), "data": data},
        row.text("precision"),
    )
    device = found.cluster.device
    shared = row.number("system_prompt_tokens") or 0.0
    question = Stage(
        serving=found,
        rates=rates,
        durations=durations if len(durations) == len(rates) else tuple(1.0 for _ in rates),
        shared=shared if row.text("prefix_caching") == "on" else 0.0,
        own=row.need("question_tokens") + (0.0 if row.text("prefix_caching") == "on" else shared),
        output=row.need("output_tokens"),
        budget=row.number("max_num_batched_tokens") or float(found.engine.token_budget(device)),
        sequences=row.number("max_num_seqs") or float(found.engine.sequence_limit(device)),
        share=row.number("gpu_memory_utilization") or 0.9,
        users=(row.number("num_system_prompts") or 0.0) * (row.number("users_per_system_prompt") or 0.0),
    )
    measured = row.measured(*MEASURED)
    blocks = row.number("kv_blocks")
    if blocks:
        measured["kv_blocks"] = blocks
    flag = row.text("flag")
    if "realised_output_shorter" in flag:
        measured.pop("e2e_ms_mean", None)
    return ServingCase(
        row.text("case_id"),
        file,
        found.engine.name,
        row.text("gpu"),
        measured,
        bool(flag) and flag != "workload_inferred",
        f"{row.text('experiment').split('-', 1)[-1]} {row.text('stage')}"
        if row.text("stage") == "all"
        else "",
        question,
    )


def _numbers(row: MeasuredRow, name: str) -> tuple[float, ...]:
    """Numbers of a cell as ``6+12``.

    Raises:
        InputError: one of them is none, or not positive.
    """
    parts = row.text(name).split("+") if row.text(name) else []
    found = tuple(MeasuredRow({name: part}, row.where).number(name) or 0.0 for part in parts)
    if parts and min(found) <= 0:
        raise InputError(f"column {name!r}: positive numbers are needed, found {row.text(name)!r}", row.where)
    return found


def predict(questions: Sequence[Stage]) -> list[dict[str, float]]:
    """Predicted columns of rows that share their replica."""
    return [_one(question) for question in questions]


def _one(question: Stage) -> dict[str, float]:
    values = latencies(run_trace(scenario(question), trace(question)))
    after = slice(int(WARM_UP * len(values["ttft"])), None)
    held = memory_of(question.serving, question.budget, question.sequences, question.share)
    return {
        "ttft_ms_mean": 1e3 * float(values["ttft"][after].mean()),
        "itl_ms_mean": 1e3 * float(values["tpot"][after].mean()),
        "e2e_ms_mean": 1e3 * float(values["e2e"][after].mean()),
        "kv_blocks": float(held.kv_blocks),
    }


def _arrivals(question: Stage) -> list[float]:
    """Exponential gaps, rescaled to each stage's duration, as the load generator draws them; s."""
    random = np.random.default_rng(1)
    times, start = [], 0.0
    for rate, duration in zip(question.rates, question.durations, strict=True):
        seconds = min(duration if duration > 1.0 else np.inf, MOST_ARRIVALS / rate)
        gaps = random.exponential(size=max(round(rate * seconds), 1))
        times.append(start + seconds * np.cumsum(gaps) / gaps.sum())
        start += seconds
    return np.concatenate(times).tolist()


def trace(question: Stage) -> str:
    """The requests; after the first of each user, the prefix cache holds what the user repeats."""
    arrivals = _arrivals(question)
    tokens, count = int(question.shared + question.own), len(arrivals)
    repeated = tokens if question.repeats else int(question.shared)
    first = min(int(question.users), count)
    hits = [int(question.shared)] * first + [repeated] * (count - first)
    return trace_text(arrivals, [tokens] * count, [int(question.output)] * count, hits)


def scenario(question: Stage) -> dict[str, Any]:
    """The run as a serving scenario that reads its trace."""
    found = question.serving
    longest = int(question.shared + question.own + question.output)
    options = {
        "max_sequences": int(question.sequences),
        "token_budget": int(question.budget),
        "memory_share": question.share,
        "max_context": 1 << (longest + 1).bit_length(),
    }
    users = {"users": int(question.users), "user_gap": client_defaults().gap.value} if question.users else {}
    return {
        "model": found.model.name,
        "cluster": cluster_key(found),
        "workload": traced(MOST_REQUESTS, **users),
        "deployment": {**pool_keys(found), "options": options},
    }


def predict_steady(questions: Sequence[Stage]) -> list[dict[str, float]]:
    """Predicted columns from steady states."""
    return [_steady(question) for question in questions]


def _steady(question: Stage) -> dict[str, float]:
    found = question.serving
    # A load generator with that many users has at most one request of each in flight.
    sequences = min(question.sequences, question.users or np.inf)
    room = kv_tokens(found, question.budget, question.sequences, question.share)
    prompt = question.shared + question.own
    table = table_of(found, question.budget, question.sequences, prompt + question.output)
    rates, durations = np.array(question.rates), np.array(question.durations)
    limits = Limits(question.budget, sequences, room)
    cached = prompt - 1.0 if question.repeats else question.shared
    state = steady_state(table, Load(prompt, question.output, rate=rates, cached=cached), limits)
    # Where the users are too few for the rate, each waits for its own last turn.
    busy = Load(prompt, question.output, concurrency=sequences, cached=cached)
    closed = steady_state(table, busy, limits)
    weights = np.minimum(rates, closed.requests_s) * durations
    weights = weights / weights.sum()
    few = ~state.stable | (state.requests_s * state.e2e_s > sequences)
    ttft, tpot = np.where(few, closed.ttft_s, state.ttft_s), np.where(few, closed.tpot_s, state.tpot_s)
    return {"ttft_ms_mean": 1e3 * float(weights @ ttft), "itl_ms_mean": 1e3 * float(weights @ tpot)}


def group_key(question: Stage) -> tuple[Any, ...]:
    """Return the key of rows that one call predicts together."""
    return question.serving.key
