"""Combined passes of two micro batches: which exchange with experts runs beside which kernels.

Megatron Core runs a layer's forward pass of one micro batch in step with a layer's backward pass of another
(overlap_moe_expert_parallel_comm; model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run), as
DeepSeek-V3's DualPipe does. First the backward pass's combination runs beside attention forward, then both
dispatches beside the experts' backward kernels, weight gradients and forward kernels, then the forward pass's
combination beside attention backward and its weight gradients.

Attention includes norms, router and shared experts. Weight gradients follow their part's backward pass, as
the recipes of Megatron Bridge have it (delay_wgrad_compute).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simulator.plan import Plans
from simulator.setting import Setting
from simulator.training.counts import micro_batches
from simulator.training.overlap import hidden


class Work(NamedTuple):
    """Device seconds of kernels of one part of a layer, by pass, shape (plans,)."""

    forward: np.ndarray
    backward: np.ndarray
    weights: np.ndarray


def alone_share(setting: Setting, plans: Plans) -> np.ndarray:
    """Share of a step's passes of one chunk that have no partner, shape (plans,).

    Without a pipeline the first forward and the last backward pass run alone (combined_1f1b.py). In one, the
    passes that fill and drain it do too: of ``m v + p - 1`` passes of a chunk on the critical path of ``m``
    micro batches, ``v`` chunks and ``p`` stages, ``v p``.
    """
    p, v = plans.pipeline, plans.virtual_pipeline
    total = micro_batches(setting, plans) * v + p - 1
    return np.minimum(v * p / np.maximum(total, 1.0), 1.0)


def beside_partner(
    forward: np.ndarray,
    backward: np.ndarray,
    attention: Work,
    experts: Work,
    slows: tuple[np.ndarray, np.ndarray],
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of a layer's exchange that run beside kernels of the other micro batch, forward and backward.

    Half of an exchange dispatches, half combines. An exchange that outlasts the backward kernels beside it
    goes on beside their weight gradients; kernels that outlast theirs delay the next exchange, which loses
    nothing by it.

    Args:
        forward: seconds of the exchange of a forward pass, shape (plans,).
        backward: those of a backward pass.
        attention: kernels before dispatch and after combination.
        experts: kernels between dispatch and combination.
        slows: share of their speed that kernels lose beside either exchange.
    """
    dispatched, returned = _in_turn(forward / 2, backward / 2, experts, slows)
    combined, back = _in_turn(forward / 2, backward / 2, attention, slows)
    return dispatched + combined, returned + back


def waits_together(*lags: np.ndarray) -> np.ndarray:
    """Share of their waits for the host that passes keep if one host thread launches all of them in turn.

    Long kernels of one pass let it catch up with short ones of another: a combined pass takes the time of its
    kernels or of all its launches, whichever is longer. Steps of Qwen3-30B whose launches take longest are as
    long as these with the overlap (AWS EFA dispatcher comparison).

    Args:
        lags: of each pass the seconds by which its launches take longer than its kernels and what is exposed
            beside them, negative where they take less; shape (plans,).
    """
    alone = sum((np.maximum(lag, 0.0) for lag in lags), np.zeros(()))
    combined = np.maximum(sum(lags, np.zeros(())), 0.0)
    return np.divide(combined, alone, out=np.ones(np.shape(alone)), where=alone > 0)


def in_fixed_shares(
    setting: Setting, plans: Plans, forward: np.ndarray, backward: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of forward and of backward passes: those of both, of combined passes shared by their FLOP.

    Both passes end together, and a wait for the host is of both. Were it of the one that is short of kernels,
    a faster link would move it from one to the other, and exchanges of state beside the other would lose by
    that.

    Args:
        setting: what the plans share.
        plans: the plans.
        forward: seconds of forward passes, shape (..., plans).
        backward: those of backward passes, with what they recompute.
    """
    combined = plans.overlap_expert.astype(bool) & (plans.expert * plans.expert_tensor > 1)
    both = forward + backward
    share = 1.0 / (2.0 + setting.trained + (plans.recompute > 0))
    ahead = np.where(combined, share * both, forward)
    return ahead, np.where(combined, both - ahead, backward)


def _in_turn(
    first: np.ndarray, second: np.ndarray, kernels: Work, slows: tuple[np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Hidden seconds of an exchange beside backward kernels, then of one beside weights left and forward."""
    beside = hidden(first, kernels.backward + kernels.weights, slows[0])
    done = np.clip((1 - slows[0]) * beside - kernels.backward, 0.0, kernels.weights)
    return beside, hidden(second, kernels.weights - done + kernels.forward, slows[1])
