"""Time of attention with a fixed-size state: Mamba-2, gated linear attention, the gated delta rule.

Whole sequences are scanned in chunks (Dao and Gu 2024, Mamba-2, section 6): products within a chunk, one
update and one read of the state per chunk. The delta rule also solves a triangular system per chunk (Yang et
al. 2024, arXiv 2406.06484). A decode step reads, updates and writes the state. A thread block takes one head
of one sequence, whose chunks follow each other: few heads cannot fill the device.
"""

from typing import NamedTuple

import numpy as np
from pydantic import Field

from core.loading import Strict
from hwmodels.kernels.attention import Array
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.gemm import power_norm, rounds
from hwmodels.kernels.l2 import faster_in_l2
from hwmodels.kernels.scan_traffic import ScanSizes, backward_ratio

BACKWARD_PRODUCTS = 2.5
"""Products and kernels of the backward pass over the forward's: gradients, and recomputed scores. Mamba-2 has
5 products with states for 2, and 3 within chunks for 1."""
STATE_BYTES = 4.0
RULES = ("mamba2", "gdn", "kda")
"""Mamba-2, the gated delta rule, and Kimi's delta rule with a gate per channel: kernels of their own."""


class ChunkedScan(Strict):
    """Constants of the scan and of its decode step."""

    overhead_s: float = Field(default=1.5e-5, ge=0)
    """Start-up of the scan's kernels: scores, chunk states, state passing, outputs."""
    compute_efficiency: float = Field(default=0.25, gt=0)
    """Share of the matrix peak: Triton kernels on tiles of a chunk by a head's dimension. An estimate."""
    memory_efficiency: float = Field(default=0.7, gt=0)
    state_passes: float = Field(default=3.0, ge=0)
    """Passes over the states of chunks: written, passed on and read; 0 in kernels that keep the state."""
    l2_gain: float = Field(default=0.0, ge=0)
    """Further speed of memory while a scan's operands and states lie in L2 between its kernels."""
    l2_fraction: float = Field(default=0.5, gt=0)
    overlap_exponent: float = Field(default=2.0, gt=0)
    block_s: float = Field(default=0.0, ge=0)
    """Time of a block around its chunks: it loads and stores the state."""
    chunk_s: float = Field(default=0.0, ge=0)
    """Time of one chunk of one head, after the one before it."""
    blocks: float = Field(default=1.0, gt=0)
    """Blocks side by side on a multiprocessor."""
    wave_quantisation: float = Field(default=1.0, ge=0, le=1)
    backward_slowdown: float = Field(default=1.0, gt=0)
    """Time of the backward pass over that of its products and bytes at the forward pass's rates."""
    decode_overhead_s: float = Field(default=4e-6, ge=0)
    decode_memory_efficiency: float = Field(default=0.8, gt=0)
    decode_l2_gain: float = Field(default=0.0, ge=0)
    """Further speed of a decode step while the states lie in L2, as in a benchmark's loop."""
    decode_l2_fraction: float = Field(default=0.5, gt=0)


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
    state_bytes = form.state_passes * STATE_BYTES * tokens / chunk * heads * key_dim * value_dim
    moved_bytes = operands * chip.element_bytes + state_bytes
    if backward:
        moved_bytes = moved_bytes * backward_ratio(_sizes(call), chip.element_bytes, delta)
    compute = flops / (chip.peak * form.compute_efficiency)
    memory = moved_bytes / (chip.bandwidth * form.memory_efficiency)
    memory = memory / faster_in_l2(moved_bytes, form.l2_gain, form.l2_fraction * chip.l2_bytes)
    shared = power_norm(compute, memory, form.overlap_exponent)
    if form.chunk_s or form.block_s:
        waves = rounds(batch * heads / (form.blocks * chip.multiprocessors), form.wave_quantisation)
        in_turn = passes * waves * (form.block_s + form.chunk_s * np.ceil(sequence / chunk))
        shared = power_norm(shared, in_turn, form.overlap_exponent)
    return (passes * form.overhead_s + shared) * (form.backward_slowdown if backward else 1.0)


def _sizes(call: ScanCalls) -> ScanSizes:
    chunk = np.minimum(call.chunk, call.sequence)
    return ScanSizes(
        keys=call.key_heads * call.key_dim,
        wide_keys=call.heads * call.key_dim,
        values=call.heads * call.value_dim,
        states=call.heads * call.key_dim * call.value_dim / chunk,
        products=call.key_heads * chunk,
        wide_products=call.heads * chunk,
    )


class States(NamedTuple):
    """Equal-shape arrays: states of a step, one per sequence and head."""

    batch: Array
    heads: Array
    key_dim: Array
    value_dim: Array


def state_step_seconds(
    form: ChunkedScan, chip: Chip, states: States, state_bytes: float, in_l2: bool = False
) -> Array:
    """Return seconds of one decode step: every sequence's state is read and written once.

    Args:
        form: constants of the kernel.
        chip: data-sheet figures at the dtype of the new token's operands.
        states: sizes of the states.
        state_bytes: bytes of an element of the state.
        in_l2: states that fit stay in L2, as in benchmark loops; a model's other layers evict them.
    """
    batch, heads, key_dim, value_dim = states
    read = batch * heads * key_dim * value_dim * state_bytes
    moved_bytes = 2.0 * read + batch * heads * (2.0 * key_dim + 2.0 * value_dim) * chip.element_bytes
    seconds = moved_bytes / (chip.bandwidth * form.decode_memory_efficiency)
    if in_l2:
        seconds = seconds / faster_in_l2(read, form.decode_l2_gain, form.decode_l2_fraction * chip.l2_bytes)
    return form.decode_overhead_s + seconds
