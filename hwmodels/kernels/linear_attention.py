"""Time of attention with a fixed-size state: Mamba-2, gated linear attention, the gated delta rule.

Whole sequences are scanned in chunks (Dao and Gu 2024, Mamba-2, section 6): products within a chunk, one
update and one read of the state per chunk. The delta rule also solves a triangular system per chunk (Yang et
al. 2024, arXiv 2406.06484). A decode step reads, updates and writes the state.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from pydantic import Field

from hwmodels.kernels.attention import Array
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.gemm import power_norm
from hwmodels.loading import Strict

BACKWARD_PRODUCTS = 2.5
"""Products of the backward pass over the forward's: gradients, and recomputed scores."""
STATE_BYTES = 4.0


class ChunkedScan(Strict):
    """Constants of the scan and of its decode step."""

    overhead_s: float = Field(default=1.5e-5, ge=0)
    """Start-up of the scan's kernels: scores, chunk states, state passing, outputs."""
    compute_efficiency: float = Field(default=0.25, gt=0)
    """Share of the matrix peak: Triton kernels on tiles of a chunk by a head's dimension. An estimate."""
    memory_efficiency: float = Field(default=0.7, gt=0)
    overlap_exponent: float = Field(default=2.0, gt=0)
    decode_overhead_s: float = Field(default=4e-6, ge=0)
    decode_memory_efficiency: float = Field(default=0.8, gt=0)


class ScanCalls(NamedTuple):
    """Equal-shape arrays of scans; `delta` is 1 for the delta rule, else 0."""

    batch: Array
    sequence: Array
    heads: Array
    key_heads: Array
    key_dim: Array
    value_dim: Array
    chunk: Array
    delta: Array


def scan_seconds(form: ChunkedScan, chip: Chip, call: ScanCalls, backward: bool) -> Array:
    """Return seconds of a chunked scan over whole sequences, forward or backward."""
    batch, sequence, heads, key_heads, key_dim, value_dim, chunk, delta = call
    chunk = np.minimum(chunk, sequence)
    tokens, passes = batch * sequence, BACKWARD_PRODUCTS if backward else 1.0
    within = 2.0 * chunk * (key_dim + value_dim)
    states = 4.0 * key_dim * value_dim
    solved = delta * (2.0 * chunk * (2.0 * key_dim + value_dim) + chunk**2)
    flops = passes * tokens * heads * (within + states + solved)
    operands = tokens * (2.0 * key_heads * key_dim + (2.0 + 2.0 * delta) * heads * value_dim)
    # A chunk's state is written, passed on and read.
    kept = 3.0 * STATE_BYTES * tokens / chunk * heads * key_dim * value_dim
    moved = passes * (operands * chip.element_bytes + kept)
    compute = flops / (chip.peak * form.compute_efficiency)
    memory = moved / (chip.bandwidth * form.memory_efficiency)
    return passes * form.overhead_s + power_norm(compute, memory, form.overlap_exponent)


class States(NamedTuple):
    """Equal-shape arrays: states of a step, one per sequence and head."""

    batch: Array
    heads: Array
    key_dim: Array
    value_dim: Array


def state_step_seconds(form: ChunkedScan, chip: Chip, states: States, state_bytes: float) -> Array:
    """Return seconds of one decode step: every sequence's state is read and written once."""
    batch, heads, key_dim, value_dim = states
    moved = 2.0 * batch * heads * key_dim * value_dim * state_bytes
    moved = moved + batch * heads * (2.0 * key_dim + 2.0 * value_dim) * chip.element_bytes
    return form.decode_overhead_s + moved / (chip.bandwidth * form.decode_memory_efficiency)
