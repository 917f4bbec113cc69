"""The most output of one replica whose latencies keep their limits, from steady states."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from core.errors import InfeasibleError
from simulator.serving.steady.kinds import ReplicaKind, memory_that_fits, table_of
from simulator.serving.steady.steady import Limits, Load, steady_state

TAIL = 1.11, 2.2
"""p99 over mean of TPOT and of TTFT: medians of 85 server logs of MLPerf Inference v4.1 and v5.1."""
SHARES = np.linspace(0.02, 1.0, 50)
"""Rates of arrivals that are tried, as shares of the most that all requests at once reach."""
CLIENTS = 40
"""Numbers of clients that are tried."""
FREE_SHARE = 0.95
"""Tuned servers leave the KV cache nearly all of the free memory."""
BUDGET, MOST_SEQUENCES = 8192.0, 2048.0


class VariedLoad(NamedTuple):
    """Requests, and limits of their 99th percentiles."""

    prompt: float
    output: float
    """Mean tokens."""
    variation: float
    """Variance of the output lengths over the square of their mean."""
    ttft_s: float
    tpot_s: float
    """inf: no limit."""


def most_within(kind: ReplicaKind, load: VariedLoad) -> float:
    """Output tokens a second and device at the best batch or rate within the limits; 0: nothing fits."""
    try:
        memory = memory_that_fits(kind, BUDGET, 256, FREE_SHARE)
    except InfeasibleError:
        return 0.0
    # Requests of different age share memory; a tenth of it stays free for those that grow.
    context = load.prompt + 0.5 * (1.0 + load.variation) * load.output
    slots = min(0.9 * memory.kv_tokens / context, MOST_SEQUENCES)
    table = table_of(kind, BUDGET, slots, load.prompt + load.output)
    clients = np.geomspace(1.0, max(slots, 1.0) * kind.pool.data, CLIENTS)
    limits = Limits(BUDGET, max(slots, 1.0), memory.kv_tokens)
    together = Load(load.prompt, load.output, clients, variation=load.variation)
    batches = steady_state(table, together, limits)
    rate = float(np.max(batches.output_tokens_s))
    if np.isfinite(load.ttft_s) or np.isfinite(load.tpot_s):
        rates = float(np.max(batches.requests_s)) * SHARES
        state = steady_state(table, replace(together, concurrency=0.0, rate=rates), limits)
        tpot, ttft = TAIL
        within = (tpot * state.tpot_s <= load.tpot_s) & (ttft * state.ttft_s <= load.ttft_s)
        rate = float(np.max(np.where(within & state.stable, state.output_tokens_s, 0.0)))
    return rate / kind.pool.devices
