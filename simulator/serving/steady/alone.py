"""Latencies of requests on an idle deployment: a lower bound at any load."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from simulator.serving.setting import ServingSetting
from simulator.serving.steps.step_times import Array
from simulator.serving.workload import Slo

MOST = 1000
"""Number of requests to price, from the first."""


def alone(setting: ServingSetting, columns: Mapping[str, np.ndarray]) -> tuple[Array, Array]:
    """TTFT and TPOT of requests that run alone with an empty cache, s; both of shape (requests,).

    Args:
        setting: TTFT is that of its first pool that takes prompts, TPOT that of its last pool.
        columns: request records by column.
    """
    entry = next(pool for pool in setting.pools if pool.pool.role != "decode")
    steps, budget = entry.costs.steps, entry.options.token_budget
    decode = setting.pools[-1].costs.steps
    first, token = [], []
    for prompt, output in zip(
        columns["prompt"][:MOST].tolist(), columns["output"][:MOST].tolist(), strict=True
    ):
        chunks = range(0, prompt, budget) if entry.options.chunked_prefill else (0,)
        sizes = [(min(budget, prompt - done) if len(chunks) > 1 else prompt, done) for done in chunks]
        first.append(sum(steps.step((chunk,), 0, 0) for chunk in sizes))
        token.append(decode.step((), 1, prompt + output // 2))
    around = entry.options.ingest_s + entry.costs.first_token_s
    return np.array(first) + around, np.array(token)


def share_alone(slo: Slo, ttft: Array, tpot: Array, output: np.ndarray) -> float:
    """Share of requests that meet all latency targets when they run alone."""
    met = np.ones(len(ttft), dtype=bool)
    for target, values in (
        (slo.ttft, ttft),
        (slo.tpot, tpot),
        (slo.e2e, ttft + tpot * (output[: len(ttft)] - 1)),
    ):
        if target is not None:
            met &= values <= target
    return float(met.mean()) if len(met) else 0.0
