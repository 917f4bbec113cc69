"""Disaggregated pools in a closed loop: clients go round between prefill and decode replicas.

Clients that wait for a prefill do not decode. The ranks of a prefill replica step together, and a step takes
the prompts that came during the one before, up to the token budget of each rank: a prompt waits for half of
the step that it finds, for steps that are planned already, and for its own. Beyond what steps carry, prompts
queue (mean value analysis of a closed network). Clients that began together stay bunched: the requests of a
round come within the time that the burst took, widened by what their lengths differ. A request whose KV has
arrived waits until a decode replica has a slot and memory for it. The client sees the first token from there:
the stream of the decode replica is what the servers' routers return.
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
    planned: float = 0.0
    """Steps before that of a prompt which are planned when it comes, where steps follow without pause."""


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
    handoff_s: float = 0.0,
    widening: ArrayLike = np.inf,
) -> Disaggregated:
    """Return the state of closed loops.

    Args:
        prefill, decode: replicas of both roles, with the limits of a rank.
        prompt, output: tokens of a request.
        clients: over all replicas.
        prefill_ranks: attention ranks that prefill, over all replicas.
        decode_replicas: replicas that decode.
        handoff_s: from a prefill to a decode replica, s.
        widening: what differing lengths add to the time of a burst in a mean round, over the decode time of a
            request; infinite where clients do not begin together.
    """
    prompt, output, clients, ranks, replicas, widening = (
        np.asarray(values, dtype=np.float64)
        for values in np.broadcast_arrays(prompt, output, clients, prefill_ranks, decode_replicas, widening)
    )
    prompts = _Prompts(prefill, prompt)
    fixed, planned, largest = prompts.fixed_s + handoff_s, prefill.planned, prompts.largest
    workers, others = ranks / prompts.ranks, 1.0 - 1.0 / np.maximum(clients, 1.0)
    decoding, waiting, each = np.ones_like(prompt), prompts.alone_s, clients / replicas
    state, step, burst_s = prompts.idle, prompts.alone_s, clients * prompts.full_s / ranks
    for _ in range(ROUNDS):
        load = Load(prompt, output, np.maximum(each * decoding, 1.0), cached=prompt - 1.0)
        state = steady_state(decode.steps, load, decode.limits)
        away = fixed + state.queue_s + state.tpot_s * np.maximum(output, 1.0)
        bunched = others * clients / workers / np.hypot(burst_s, widening * state.tpot_s * output)
        for _ in range(QUEUE_ROUNDS):
            there = others * clients / workers * waiting / (waiting + away)
            arriving = np.maximum(there / waiting, bunched) * step
            step = 0.5 * step + 0.5 * prompts.step_s(np.clip(arriving, 1.0, largest))
            busy = np.minimum(arriving, 1.0)
            steps = 1.0 + 0.5 * busy + planned * busy**2
            queued = np.maximum(there / largest - 1.5 - planned, 0.0)
            waiting = 0.5 * waiting + 0.5 * step * (steps + queued)
        decoding = 0.5 * decoding + 0.5 * away / (away + waiting)
    ttft = fixed + waiting + state.queue_s + state.tpot_s
    return Disaggregated(ttft, state, prompts.full_s)


class _Prompts:
    """Steps of a prefill replica; arrays of shape (cases,)."""

    def __init__(self, side: PoolSide, prompt: Array) -> None:
        ones = np.ones_like(prompt)
        self.idle = steady_state(side.steps, Load(prompt, 2.0 * ones, ones), side.limits)
        self.alone_s, beside_s = self.idle.prefill_s, self.idle.prefill_beside_s
        self.fixed_s = self.idle.ttft_s - self.alone_s
        self.ranks = np.asarray(side.steps.ranks, dtype=np.float64)
        self.rank_prompts = np.maximum(np.asarray(side.limits.budget, dtype=np.float64) / prompt, 1.0)
        # Prompts of a step attend to their own tokens alone.
        filled = np.maximum(self.rank_prompts, 2.0)
        single, full = (
            side.steps.mixed_seconds(count * prompt, 0.0, 0.0 * ones, ones, count) for count in (ones, filled)
        )
        self._behind_s = beside_s * np.maximum(full / single - 1.0, 0.0) / (filled - 1.0)
        self._beside_s = (beside_s - self.alone_s) / np.maximum(self.ranks - 1.0, 1.0)
        self.largest = self.ranks * self.rank_prompts
        """Prompts of a full step."""
        self.full_s = (beside_s + self._behind_s * (self.rank_prompts - 1.0)) / self.rank_prompts
        """Time that a prompt takes of a rank whose steps are full."""

    def step_s(self, packed: Array) -> Array:
        """Seconds of a step that holds `packed` prompts, dealt to the ranks in turn."""
        # The mean of the rank with most: a count that no multiple of the ranks is leaves half a prompt more.
        longest = np.clip(packed / self.ranks + 0.5 * (1.0 - 1.0 / self.ranks), 1.0, self.rank_prompts)
        wide = np.minimum(packed, self.ranks) - 1.0
        return self.alone_s + self._beside_s * wide + self._behind_s * (longest - 1.0)
