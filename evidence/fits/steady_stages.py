"""Stages of constant-rate load from steady states, for fits of engine constants."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evidence.serving.stages import Stage
from simulator.serving.steady.kinds import kv_tokens, table_of
from simulator.serving.steady.steady import Limits, Load, steady_state


def predict_steady(questions: Sequence[Stage]) -> list[dict[str, float]]:
    """Predicted columns from steady states."""
    return [_steady(stage) for stage in questions]


def _steady(stage: Stage) -> dict[str, float]:
    serving = stage.serving
    # A load generator with that many users has at most one request of each in flight.
    sequences = min(stage.sequences, stage.users or np.inf)
    room = kv_tokens(serving, stage.budget, stage.sequences, stage.share)
    prompt = stage.shared + stage.own_tokens
    table = table_of(serving, stage.budget, stage.sequences, prompt + stage.output)
    rates, durations = np.array(stage.rates), np.array(stage.durations)
    limits = Limits(stage.budget, sequences, room)
    cached = prompt - 1.0 if stage.repeats else stage.shared
    state = steady_state(table, Load(prompt, stage.output, rate=rates, cached=cached), limits)
    # Where the users are too few for the rate, each waits for its own last turn.
    busy = Load(prompt, stage.output, concurrency=sequences, cached=cached)
    closed = steady_state(table, busy, limits)
    weights = np.minimum(rates, closed.requests_s) * durations
    weights = weights / weights.sum()
    few = ~state.stable | (state.requests_s * state.e2e_s > sequences)
    ttft, tpot = np.where(few, closed.ttft_s, state.ttft_s), np.where(few, closed.tpot_s, state.tpot_s)
    return {"ttft_ms_mean": 1e3 * float(weights @ ttft), "itl_ms_mean": 1e3 * float(weights @ tpot)}
