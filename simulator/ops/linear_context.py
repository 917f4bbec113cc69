"""Context-parallel traffic of linear attention: slices of heads, or states handed from rank to rank.

The algorithms of ``simulator.levers.linear_context``. A state has key_dim x value_dim elements for each head,
whatever the length of the sequence. Products within chunks need no state: ZeCO's states travel beside them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.models.linear_attention import STATE_BYTES, LinearAttention
from simulator.ops.op import Collective, MemoryBound, Op, Size
from simulator.ops.rank import Array, Rank

SCAN_BLOCKS = 8
"""Blocks into which ZeCO splits a state. Assumed: its paper tunes the number and prints none."""


def exchange(rank: Rank, spec: LinearAttention, inputs: Array, width: Array) -> Iterator[Op]:
    """Traffic of one layer under the release's algorithm.

    Args:
        rank: the batch and the shard.
        spec: the layer.
        inputs: elements a token that the scan reads, shape (cases,).
        width: elements a token that the scan writes, shape (cases,).
    """
    if np.any(rank.context > 1):
        yield from SENDS[rank.how.linear_context](rank, spec, inputs, width)


def _heads(rank: Rank, spec: LinearAttention, inputs: Array, width: Array) -> Iterator[Op]:
    """All-to-all of the scan's inputs from slices of the sequence to slices of heads, and of its output back.

    The scan runs over whole sequences, so context-parallel ranks take heads instead (Megatron Core,
    mamba_context_parallel.py); backward sends the gradients the other ways.
    """
    for name, channels in (("scan_inputs", inputs), ("scan_output", width)):
        yield _both_ways(rank, name, "all_to_all", rank.width * rank.tokens * channels)


def _ring(rank: Rank, spec: LinearAttention, inputs: Array, width: Array) -> Iterator[Op]:
    """LASP: the state goes from rank to rank, each adding its own (Sun et al. 2024, arXiv 2404.02882).

    The last rank waits for c-1 sends, one after the other. Before a rank sends, its queries read the state
    that came and add to their output (Sun et al. 2025, arXiv 2502.07563, section 3.4 and algorithm 6);
    backward, the state's gradient adds to those of keys and values.
    """
    yield from _halo(rank, spec)
    state, hops = _state(rank, spec), rank.context - 1
    yield _both_ways(rank, "states", "chain", state, hops)
    yield _updates(rank, "read_state", state + _read(rank, spec, 1, 2), state + _read(rank, spec, 3, 3), hops)


def _gather(rank: Rank, spec: LinearAttention, inputs: Array, width: Array) -> Iterator[Op]:
    """LASP-2: an all-gather of all states, and a sum of those before a rank (Sun 2025, arXiv 2502.07563).

    Its code waits for the gather before the products within chunks (OpenSparseLLMs/Linear-MoE, lasp2); its
    measured steps lose more than the gathers take (Chou et al. 2025, arXiv 2507.01004, section 4).
    """
    yield from _halo(rank, spec)
    gathered = _state(rank, spec) * rank.context
    yield _both_ways(rank, "states", "all_gather", gathered)
    yield _updates(rank, "sum_states", gathered, gathered, 1.0)


def _scan(rank: Rank, spec: LinearAttention, inputs: Array, width: Array) -> Iterator[Op]:
    """ZeCO: states pass from rank to rank in blocks (Chou et al. 2025, arXiv 2507.01004).

    The last rank has its first block after c-1 sends, and the others at the pace of the slowest pair.
    """
    yield from _halo(rank, spec)
    block, window = _state(rank, spec) / SCAN_BLOCKS, _within_chunks(rank, spec)
    yield _both_ways(rank, "states", "chain", block, rank.context - 1, window=window)
    yield _both_ways(rank, "blocks", "send_receive", block, SCAN_BLOCKS - 1, window=window)


SENDS = {"heads": _heads, "lasp": _ring, "lasp-2": _gather, "zeco": _scan}


def _halo(rank: Rank, spec: LinearAttention) -> Iterator[Op]:
    """Last inputs of the neighbour's slice, which the first tokens of the convolution read."""
    inputs = (spec.convolution - 1) * _channels(rank, spec) * rank.width
    if spec.convolution > 1:
        yield _both_ways(rank, "halo", "send_receive", _sequences(rank) * inputs)


def _updates(rank: Rank, name: str, forward: Size, backward: Size, times: Size) -> MemoryBound:
    """Kernels that read or write ``forward`` and ``backward`` bytes, one a time."""
    runs = np.where(rank.context > 1, times, 0.0)
    return MemoryBound(
        name=name,
        kind="copy",
        part="core",
        bytes=runs * forward,
        launches=runs,
        starts=runs,
        backward_bytes=runs * backward,
        backward_launches=runs,
        backward_starts=runs,
    )


def _channels(rank: Rank, spec: LinearAttention) -> Array:
    return spec.channels / rank.tensor


def _sequences(rank: Rank) -> Size:
    return sum(
        (np.asarray(segment.sequences, dtype=np.float64) for segment in rank.batch.segments), np.zeros(())
    )


def _state(rank: Rank, spec: LinearAttention) -> Array:
    """Bytes of the states of all sequences and of one rank's heads, shape (cases,)."""
    elements = spec.heads / rank.tensor * spec.key_dim * spec.value_dim
    return np.asarray(_sequences(rank) * STATE_BYTES * elements)


def _read(rank: Rank, spec: LinearAttention, keys: int, values: int) -> Array:
    """Bytes of some passes over a rank's tokens, of the width of its keys and of its values."""
    width = spec.heads / rank.tensor * (keys * spec.key_dim + values * spec.value_dim)
    return np.asarray(rank.width * rank.tokens * width)


def _within_chunks(rank: Rank, spec: LinearAttention) -> Array:
    """Share of the scan's products that need no state (the FLOPs of ``simulator.ops.op.Scan``)."""
    within = 2.0 * spec.chunk * (spec.key_dim + spec.value_dim)
    if spec.delta:
        within += 2.0 * spec.chunk * (2 * spec.key_dim + spec.value_dim) + spec.chunk**2
    share = within / (within + 4.0 * spec.key_dim * spec.value_dim)
    return np.where(rank.context > 1, share, 0.0)


def _both_ways(
    rank: Rank, name: str, operation: str, size: Size, times: Size = 1.0, window: Size = 0.0
) -> Collective:
    """A collective, and the same one of gradients in the backward pass."""
    send = Collective(
        name=f"context.{name}",
        kind="context",
        part="core",
        operation=operation,
        bytes=size,
        size=rank.context,
        stride=rank.tensor,
        repeats=times,
        window=window,
    )
    return send.changed(only_backward=(send.changed(gradient="input"),))
