"""Interface of cost models for the event engine: seconds of one step of one replica, at low cost.

The event engine calls these functions once for each change of a batch, so they take and return plain
numbers. A table made in arrays when a run starts stands behind them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Chunk = tuple[int, int]
"""Prompt tokens that a step computes of one sequence, and tokens of its KV that were there before."""


class RankBatch(NamedTuple):
    """Batch of one rank in one step."""

    prefills: Sequence[Chunk]
    decodes: int
    kv_tokens: int
    """Sum over the decoding sequences of their KV tokens, the new one included."""


Stretch = tuple[float, float, int]
"""Consecutive decode steps of one batch: seconds of the first step, growth per step (s), and steps with that
growth (up to the next knot of the table)."""


class StepTimes(Protocol):
    """Step times of one kind of replica.

    Seconds of a step count from the launch of its first kernel to its sampled tokens on the host, all
    pipeline stages added up, host time included where the engine does not hide it.
    """

    stages: int
    """Pipeline stages: a stage is busy for a step's seconds over ``stages``."""

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """Seconds of one step.

        Args:
            prefills: prompt chunks of the step.
            decodes: sequences that decode.
            kv_tokens: sum of their KV tokens.
            queries: tokens of each decoding sequence; more than one verifies drafts.
        """
        ...

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """Seconds of the following decode steps; every step adds ``queries`` KV tokens per sequence."""
        ...

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """Seconds of one step of data-parallel attention ranks that share their experts.

        Args:
            ranks: the batch of each rank; an idle rank has an empty one and still steps.
            queries: tokens of each decoding sequence.
        """
        ...

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of all the replica's devices and its share of their hosts during steps, W.

        Args:
            tokens: query tokens of a step over the replica, shape (steps,).
            decodes: number of decoding sequences, shape (steps,).
            kv_tokens: sum of KV tokens over the decodes, shape (steps,).
            seconds: time that a step occupies the replica, s, shape (steps,).
        """
        ...

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """Seconds of one step by part (linear, attention, experts, tensor, ..., host); sums to ``step``."""
        ...


class SlidingKv(NamedTuple):
    """KV that a sequence holds in sliding layers, whose blocks are freed as they leave the window."""

    tokens: int = 0
    """The window; 0: sliding layers hold as many tokens as others, or a stated share."""
    ratio: int = 0
    """Groups of sliding layers as large as the group of full ones: blocks of both have one size."""


NO_WINDOW = SlidingKv()


@dataclass(frozen=True)
class HeldAdapters:
    """Room for low-rank adapters on one replica."""

    room: int
    """Adapters that fit into the memory kept for them."""
    load_s: float
    """Seconds to copy one from the host to all devices of the replica."""
    bytes: float
    """Of one adapter over the replica."""
    blocks: int = 0
    """KV blocks that one in use takes; 0: adapters have memory of their own."""


@dataclass(frozen=True)
class ReplicaCosts:
    """Inputs of the event engine for one kind of replica."""

    steps: StepTimes
    kv_blocks: int
    """KV blocks of one data-parallel rank."""
    kv_token_bytes: float
    """KV bytes of a token over all layers and ranks of the replica."""
    weight_bytes: float
    """Weights on one device."""
    copy_s: float
    """Seconds to copy the KV of one token between the replica's devices and their hosts."""
    idle_watts: float
    """Power of the whole replica between steps, its share of hosts included."""
    window: SlidingKv = NO_WINDOW
    """KV of sliding layers whose blocks are freed."""
    first_token_s: float = 0.0
    """Fixed part of TTFT outside of steps by class of layers and number format, beside the engine's own."""
    adapters: HeldAdapters | None = None
    """Adapters that the replica holds."""
