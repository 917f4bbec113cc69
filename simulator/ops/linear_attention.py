"""Linear attention and state-space layers: projections, convolution, chunked scan, gated norm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.models.linear_attention import LinearAttention
from simulator.ops import elementwise as passes
from simulator.ops.build import kernel, linear
from simulator.ops.linear_context import exchange
from simulator.ops.op import MemoryBound, Op, Scan, StateStep
from simulator.ops.rank import Array, Rank


def linear_attention(rank: Rank) -> list[Op]:
    """One layer's linear attention; value heads are sharded over tensor-parallel ranks, key heads
    over at most as many ranks as there are key heads."""
    spec = _spec(rank)
    heads = spec.heads / rank.tensor
    key_heads = np.maximum(spec.key_heads / rank.tensor, 1.0)
    channels = 2 * key_heads * spec.key_dim + heads * spec.value_dim
    gates = heads * (spec.value_dim + spec.key_dim * spec.channel_gates)
    narrow = spec.gate_rank * (1.0 + spec.channel_gates)
    inputs = channels + heads * spec.head_gates + (narrow or gates)
    width = heads * spec.value_dim
    hidden, part = rank.model.hidden, "projections"
    kept_inputs = rank.tokens * hidden / rank.spread
    return [
        *linear(rank, "linear_input", "column", inputs, hidden, part=part, bias=False, keeps=kept_inputs),
        *(
            linear(rank, "linear_gates", "column", gates, spec.gate_rank, part=part, bias=False)
            if spec.gate_rank
            else []
        ),
        *_core(rank, spec, channels, heads, key_heads),
        *_batch_first(rank, inputs, width),
        *exchange(rank, spec, inputs, width),
        *linear(rank, "linear_output", "row", hidden, width, part=part, bias=False),
    ]


def _batch_first(rank: Rank, inputs: Array, width: Array) -> Iterator[Op]:
    """Copies between layouts with the sequence and with the batch first, of more than one sequence.

    Forward copies the scan's inputs and its output; backward copies the inputs' gradient, which the
    projection reads (Megatron Core, mamba_mixer.py: _ssm_training).
    """
    if not rank.how.scans_batch_first:
        return
    many = (
        sum(np.where(np.greater(s.sequences, 1), s.tokens, 0.0) for s in rank.batch.segments) / rank.context
    )
    copied = passes.COPY * rank.width * many
    # Plans of one sequence launch no copies, beside others in a batch as alone.
    runs = np.where(np.greater(copied, 0), 1.0, 0.0)
    if np.any(runs):
        yield MemoryBound(
            name="batch_first",
            kind="copy",
            part="core",
            bytes=copied * (inputs + width),
            launches=2.0 * runs,
            starts=2.0 * runs,
            backward_bytes=copied * inputs,
            backward_launches=runs,
            backward_starts=runs,
        )


def _spec(rank: Rank) -> LinearAttention:
    if rank.model.linear is None:
        raise ValueError(f"{rank.model.name} has no linear attention")
    return rank.model.linear


def _core(rank: Rank, spec: LinearAttention, channels: Array, heads: Array, key_heads: Array) -> Iterator[Op]:
    elements = rank.tokens * channels
    yield kernel(
        rank,
        "convolution",
        "elementwise",
        passes.CONVOLUTION,
        elements,
        part="core",
        saved=rank.width * elements,
        parameters=channels * (spec.convolution + spec.convolution_bias),  # type: ignore[arg-type]
    )
    for number, segment in enumerate(rank.batch.segments):
        name = f"scan.{number}" if number else "scan"
        tokens = segment.tokens / rank.context
        if segment.phase == "decode":
            yield StateStep(
                name=name,
                part="core",
                sequences=tokens,
                heads=heads,
                key_dim=spec.key_dim,
                value_dim=spec.value_dim,
                dtype=rank.formats.core,
            )
            continue
        yield Scan(
            name=name,
            part="core",
            sequences=segment.sequences,  # type: ignore[arg-type]
            tokens=np.asarray(segment.queries, dtype=np.float64) / rank.context,
            heads=heads,
            key_heads=key_heads,
            key_dim=spec.key_dim,
            value_dim=spec.value_dim,
            chunk=spec.chunk,
            delta=spec.delta,
            dtype=rank.formats.core,
            saved=rank.width * tokens * heads * _saved_by_head(spec),
        )
    width = heads * spec.value_dim
    shared = float(spec.value_dim) if spec.norm_per_head else width
    count = passes.GATED_NORM if spec.delta or rank.how.appends else passes.SCAN_GATED_NORM
    norm = kernel(rank, "gated_norm", "norm", count, rank.tokens * width, part="core")
    # The norm saves its input, and the gate is saved beside it.
    kept_bytes = 2 * rank.width * rank.tokens * width
    yield norm.changed(saved=kept_bytes, parameters=shared + spec.head_parameters * heads)


def _saved_by_head(spec: LinearAttention) -> int:
    """Elements per token and value head that a scan saves for its backward pass, which computes states again.

    Mamba-2 saves the output before the gate; its other inputs are those of the convolution, which also runs
    again (mamba_ssm, ssd_combined.py: MambaSplitConv1dScanCombinedFn). The delta rule saves normed queries
    and keys of every value head, values, and the solved systems of chunks (flash-linear-attention,
    ChunkGatedDeltaRuleFunction).
    """
    return 2 * spec.key_dim + spec.value_dim + spec.chunk if spec.delta else spec.value_dim
