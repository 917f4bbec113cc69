"""Disaggregated pools in a closed loop: clients go round between prefill and decode replicas.

Clients that wait for a prefill do not decode. A step of a prefill replica takes prompts from its queue up to
the token budget; a prompt finds the mean queue (mean value analysis of a closed network). A request whose KV
has arrived waits until a decode replica has a slot and memory for it. The client sees the first token from
there: the stream of the decode replica is what the servers' routers return.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from simulator.serving.steady.steady import Limits, Load, Steady, steady_state
from simulator.serving.steps.speculation_cases import SpeculativeCases
from simulator.serving.steps.step_arrays import StepCases

Array = NDArray[np.float64]

ROUNDS = 8
"""Iterations of the clients' shares of both sides."""
QUEUE_ROUNDS = 32
"""Iterations of the queue of prompts within one of them."""


class PoolSide(NamedTuple):
    """Replicas of one role."""

    steps: StepCases | SpeculativeCases
    limits: Limits


class Disaggregated(NamedTuple):
    """Means of a closed loop over both pools, s; arrays of shape (cases,)."""

    ttft_s: Array
    decode: Steady
    """State of one decode replica."""
    prompt_s: Array
    """Time that a prompt takes of a prefill rank whose steps are full."""


def disaggregated(
    prefill: PoolSide,
    decode: PoolSide,
    prompt: ArrayLike,
    output: ArrayLike,
    clients: ArrayLike,
    prefill_ranks: ArrayLike,
    decode_replicas: ArrayLike,
) -> Disaggregated:
    """Return the state of closed loops.

    Args:
        prefill, decode: replicas of both roles, with the limits of a rank.
        prompt, output: tokens of a request.
        clients: over all replicas.
        prefill_ranks: attention ranks that prefill, over all replicas.
        decode_replicas: replicas that decode.
    """
    prompt, output, clients, ranks, replicas = (
        np.asarray(values, dtype=np.float64)
        for values in np.broadcast_arrays(prompt, output, clients, prefill_ranks, decode_replicas)
    )
    ones = np.ones_like(prompt)
    idle = steady_state(prefill.steps, Load(prompt, 2.0 * ones, ones), prefill.limits)
    own, fixed = idle.prefill_beside_s, idle.ttft_s - idle.prefill_s
    most = np.maximum(np.asarray(prefill.limits.budget, dtype=np.float64) / prompt, 1.0)
    # Prompts of a step attend to their own tokens alone.
    filled = np.maximum(most, 2.0)
    single, full = (
        prefill.steps.mixed_seconds(count * prompt, 0.0, 0.0 * ones, ones, count) for count in (ones, filled)
    )
    slope = own * np.maximum(full / single - 1.0, 0.0) / (filled - 1.0)
    decoding, waiting, each = ones, own, clients / replicas
    state = idle
    for _ in range(ROUNDS):
        load = Load(prompt, output, np.maximum(each * decoding, 1.0), cached=prompt - 1.0)
        state = steady_state(decode.steps, load, decode.limits)
        away = fixed + state.queue_s + state.tpot_s * np.maximum(output, 1.0)
        for _ in range(QUEUE_ROUNDS):
            queued = clients / ranks * waiting / (waiting + away)
            others = queued * (1.0 - 1.0 / np.maximum(clients, 1.0))
            packed = np.clip(1.0 + others, 1.0, most)
            step = own + slope * (packed - 1.0)
            waiting = 0.5 * waiting + 0.5 * step * (1.0 + others / packed)
        decoding = 0.5 * decoding + 0.5 * away / (away + waiting)
    full_s = (own + slope * (most - 1.0)) / most
    return Disaggregated(fixed + waiting + state.queue_s + state.tpot_s, state, full_s)
