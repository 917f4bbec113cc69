"""The figures of steady states, over arrays."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.serving.steady.steady_cases import Cases

Array = NDArray[np.float64]

LIKELY = 2.33
"""Deviations above the mean up to which the TPOT of a share of requests does not fall: 99 % of them."""


@dataclass(frozen=True)
class Steady:
    """Means of a steady state, arrays of one shape."""

    ttft_s: Array
    """TTFT of a request that finds the replica busy: fixed part, running step, own prefill, queue."""
    queue_s: Array
    """Part of TTFT before the request's first step: waits for a slot, for memory and for other prefills."""
    tpot_s: Array
    tpot_spread_s: Array
    """Standard deviation of TPOT over requests, by batches and prompts met, and drafts; 0 in closed loops."""
    batch: Array
    """Decoding sequences of one rank."""
    prefill_s: Array
    """Prefill of one prompt on an otherwise idle replica."""
    prefill_beside_s: Array
    """The same when every data-parallel rank prefills a prompt."""
    step_s: Array
    """A pure decode step; of a replica that only prefills, the step that a request meets."""
    requests_s: Array
    """Requests a second of the whole replica."""
    output_tokens_s: Array
    watts: Array
    """Power of the replica's devices, without hosts."""
    stable: NDArray[np.bool_]
    """False where the queue grows without bound at the requested rate."""

    @property
    def e2e_s(self) -> Array:
        """Mean end-to-end latency."""
        return self.ttft_s + self.decode_s

    decode_s: Array
    """From first to last token."""
    last_tpot_s: Array = field(default_factory=lambda: np.zeros(()))
    """TPOT of the last requests of clients whose run ends: no more prompts come than those that wait."""


def watts(cases: Cases, ends: Array, batch: Array, tpot: Array) -> Array:
    """Power of the replica's devices, without hosts, W.

    Args:
        cases: the loads.
        ends: requests that end a second, of one batch in flight.
        batch: its decoding sequences.
        tpot: seconds between decodes of a request.
    """
    table, ranks, stages = cases.table, cases.ranks, cases.stages
    prefill, _ = cases.prefill
    # All stages of a pipeline together run one micro batch's step in each of these intervals. Without decodes
    # a lone prompt keeps all ranks and stages busy, and more of them fill the same time.
    interval = np.where(cases.decodes, tpot / stages, prefill)
    everywhere = ends * prefill * ranks * stages
    # Between Poisson arrivals a replica without requests idles; batches are larger while it steps.
    waits = -np.expm1(-batch * ranks * stages - everywhere)
    steps = np.where(cases.decodes | (stages > 1), waits, np.minimum(everywhere, 1.0))
    busy = np.where(cases.closed & cases.decodes, 1.0, steps)
    busy = np.maximum(busy, 1e-9)
    computed = cases.output * cases.verified_per_token * cases.decodes + cases.new
    tokens = ends * computed * interval * ranks * stages / busy
    decodes = np.where(cases.decodes, batch * ranks / busy, 0.0)
    idle = table.idle_watts
    return idle + busy * (table.watts(tokens, decodes, decodes * cases.keys, interval) - idle)
