"""Builders of ops common to all kinds of layers: linear layers, memory-bound kernels, collectives."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from simulator.ops import elementwise as passes
from simulator.ops.op import Collective, Driver, End, Gradient, MemoryBound, Op, Product, Role, Size
from simulator.ops.rank import Rank

LOW_PRECISION = ("fp8", "mxfp8", "nvfp4")
"""Number formats that operands are cast to before each product."""

EXPERT_DOWN = "expert_down"
"""Name of the product whose input is the activation of routed experts."""
SCALE_BYTES = {"mxfp8": 1 / 32, "nvfp4": 1 / 16}
"""Bytes of scales per element of block-scaled formats (OCP MX: blocks of 32 elements; NVFP4: 16)."""
CAST_BYTES = {"fp8": 1.0, "mxfp8": 1.0 + SCALE_BYTES["mxfp8"], "nvfp4": 0.5 + SCALE_BYTES["nvfp4"]}
"""Bytes of an element of an operand in a narrow format, with its share of the scales."""


def linear(
    rank: Rank,
    name: str,
    role: Role,
    outputs: Size,
    inputs: Size,
    *,
    part: str,
    tokens: Size | None = None,
    dtype: str = "",
    bias: bool | None = None,
    keeps: Size | None = None,
    groups: Size = 1.0,
    launches: Size = 1.0,
    depends_on: Driver = "tokens",
) -> list[Op]:
    """A linear layer with weights of shape (outputs, inputs) on one rank, and the casts of its operands.

    Args:
        rank: the batch, the shard and its kernels.
        name: name of the layer.
        role: the sharded dimension of its weight.
        outputs: columns of its weight.
        inputs: rows of its weight.
        part: part of the layer that it belongs to.
        tokens: input tokens; by default the rank's.
        dtype: number format of its operands; by default that of linear layers.
        bias: whether it has a bias; by default as the model's linear layers.
        keeps: elements of its input saved for the backward pass; by default all.
        groups: experts of the rank, each with its own ``tokens``.
        launches: kernels of one product.
        depends_on: what its time follows when a server decodes.
    """
    formats = rank.formats
    dtype = dtype or formats.linear
    tokens = rank.tokens if tokens is None else tokens
    bias = rank.model.bias if bias is None else bias
    elements = groups * outputs * inputs
    kind = "grouped_gemm" if role == "expert" else "gemm"
    after: list[Op] = []
    if dtype == "fp8" and rank.how.rescale_passes and role != "expert":
        after += _rescaled(rank, name, part, tokens * inputs, elements)
    if rank.how.accumulated_bytes:
        bytes_moved = rank.how.accumulated_bytes * elements
        added = _weight_kernel(f"{name}.accumulate", kind, part, bytes_moved, role, variant="elementwise")
        after.append(added.changed(launches=rank.how.accumulation_launches))
    if bias and rank.how.elementwise == "eager":
        count = passes.BIAS_GRADIENT
        bytes_moved = count.backward * formats.width * tokens * outputs * groups
        gradient = _weight_kernel(f"{name}.bias_gradient", "elementwise", part, bytes_moved)
        after.append(gradient.changed(launches=count.backward_launches, beside=True))
    saved = tokens * inputs * groups if keeps is None else keeps
    product = Product(
        name=name,
        kind=kind,
        part=part,
        module=name,
        m=tokens,
        n=outputs,
        k=inputs,
        groups=groups,
        dtype=dtype,
        role=role,
        launches=launches,
        in_turn=rank.how.in_turn if role == "expert" else 0.0,
        parameters=elements + (groups * outputs if bias else 0.0),
        saved=saved * (formats.kept_width if dtype == formats.linear else formats.width),
        depends_on=depends_on,
        only_backward=tuple(after),
    )
    if dtype not in LOW_PRECISION or not rank.how.cast_passes:
        return [product]
    return [*_casts(rank, product), product]


def _rescaled(rank: Rank, name: str, part: str, inputs: Size, weights: Size) -> Iterator[MemoryBound]:
    """Kernels that multiply the gradients of a product's input and weights by the scales of their operands.

    Torchao's products with a scale a row accumulate fast forward alone; backward it runs cuBLAS's kernel for
    one scale a tensor and scales its result (torchao, float8_ops.py: addmm_float8_unwrapped).

    Args:
        rank: the batch, the shard and its kernels.
        name: name of the product.
        part: part of the layer that it belongs to.
        inputs: elements of its input.
        weights: elements of its weights.
    """
    size = rank.formats.width * rank.how.rescale_passes
    ends: tuple[tuple[Gradient, Size], ...] = (("input", inputs), ("weight", weights))
    for gradient, elements in ends:
        yield MemoryBound(
            name=f"{name}.rescale",
            kind="elementwise",
            part=part,
            bytes=size * elements,
            gradient=gradient,
            beside=True,
        )


def _weight_kernel(
    name: str, kind: str, part: str, bytes_moved: Size, role: Role = "", variant: str = ""
) -> MemoryBound:
    """A memory-bound kernel of the weights' gradient."""
    return MemoryBound(
        name=name, kind=kind, variant=variant, part=part, role=role, bytes=bytes_moved, gradient="weight"
    )


def _casts(rank: Rank, product: Product) -> Iterator[MemoryBound]:
    """Kernels that quantise a product's operands, and those that reorder scales of blocks.

    Backward, the gradient of the output is quantised once, by rows and by columns, and both products read
    scales of two operands (Transformer Engine, general_grouped_gemm: swizzle_scaling_factors). Weights that
    are quantised in every pass take half of the passes in each: rows are read forward, columns backward.
    """
    how, grouped = rank.how, product.role == "expert"
    size = rank.formats.width * how.cast_passes * product.groups
    weights = product.n * product.k / 2 if how.casts_weights else 0.0
    kernels = how.cast_launches * (product.groups if grouped and how.casts_by_expert else 1.0)
    fused = grouped and how.experts == "fused-mlp"
    activated = product.module == EXPERT_DOWN
    yield MemoryBound(
        name=f"{product.name}.cast",
        kind="elementwise",
        variant="quantize_fp8",
        part=product.part,
        module=product.module,
        beside=True,
        depends_on=product.depends_on,
        bytes=0.0 if fused and activated else size * (product.k * product.m + weights),
        looped=kernels - 1.0,
        starts=kernels,
        backward_bytes=0.0 if fused and not activated else size * (product.n * product.m + weights),
    )
    if how.swizzles == "none" or product.dtype not in SCALE_BYTES or fused:
        return
    operands = 2.0 * (product.groups if grouped and how.swizzles == "per-expert" else 1.0)
    scales = 2.0 * SCALE_BYTES[product.dtype] * product.groups
    read = product.m * product.k + product.k * product.n
    yield MemoryBound(
        name=f"{product.name}.swizzle",
        kind="elementwise",
        part=product.part,
        module=product.module,
        depends_on=product.depends_on,
        bytes=scales * read,
        launches=0.0,
        looped=operands,
        starts=operands,
        backward_bytes=scales * (2 * product.m * product.n + read),
        backward_launches=0.0,
        backward_looped=2.0 * operands,
        backward_starts=2.0 * operands,
    )


def kernel(
    rank: Rank,
    name: str,
    kind: str,
    count: passes.MemoryPasses,
    elements: Size,
    *,
    part: str,
    variant: str = "",
    repeats: Size = 1.0,
    saved: Size = 0.0,
    parameters: Size = 0.0,
    module: str = "",
    depends_on: Driver = "tokens",
) -> MemoryBound:
    """A memory-bound kernel that passes over ``elements`` elements."""
    size = np.multiply(elements, rank.width)
    return MemoryBound(
        name=name,
        kind=kind,
        part=part,
        module=module or name,
        variant=variant,
        bytes=count.forward * size,
        backward_bytes=count.backward * size,
        casts=count.forward_casts * np.asarray(elements),
        backward_casts=count.backward_casts * np.asarray(elements),
        launches=repeats * np.float64(count.forward_launches),
        backward_launches=repeats * np.float64(count.backward_launches),
        repeats=repeats,
        saved=saved,
        parameters=parameters,
        depends_on=depends_on,
    )


def separate_sums(rank: Rank, name: str, readers: int, part: str) -> list[Op]:
    """The sums of a block whose products are separate; on shards, where each reduces its own gradient."""
    shards = rank.spread if rank.how.gathers_by_product else 1.0
    return gradient_sums(rank, name, readers, rank.tokens * rank.model.hidden / shards, part)


def gradient_sums(rank: Rank, name: str, readers: float, elements: Size, part: str) -> list[Op]:
    """Kernels that add up the gradients of a tensor that several products read; serving has none."""
    if readers <= 1 or rank.how.joins_residual:
        return []
    count, times = passes.GRADIENT_SUM[rank.how.joins_sums], readers - 1.0
    return [
        kernel(rank, name, "elementwise", count, elements, part=part, variant="elementwise", repeats=times)
    ]


def enter_tensor(
    rank: Rank, name: str, part: str, width: float | None = None, products: float = 1.0
) -> list[Op]:
    """All-gather the input of sharded linear layers, where the sequence is sharded; nothing on one rank.

    Backward reduces the gradient of the input, and gathers once more for the gradient of the weights
    (Korthikanti et al. 2022, section 4.2.2). Products that gather for themselves do both once each, and keep
    what they gathered.

    Args:
        rank: the batch, the shard and its kernels.
        name: name of the block that they enter.
        part: part of the layer that it belongs to.
        width: bytes of a gathered element; by default those that linear layers read.
        products: products that read it.
    """
    if not (rank.tensor > 1).any():
        return []
    sharded, unsharded = _groups(rank)
    size = rank.tokens * rank.model.hidden
    gathered = size * (rank.formats.operand_width if width is None else width)
    gather = _collective(name, part, "input", "all_gather", gathered, sharded)
    again = gather.changed(name=f"{name}.again", gradient="weight", launches=0.0)
    scatter = _collective(name, part, "input", "reduce_scatter", size * rank.width, sharded, "input")
    reduce = _collective(name, part, "input", "all_reduce", size * rank.width, unsharded, "input")
    if rank.how.gathers_by_product:
        every = {"repeats": products, "launches": products * gather.launches}
        kept_bytes = np.where(sharded > 1, (products - 1.0 / sharded) * rank.width * size, 0.0)
        back = tuple(op.changed(**every) for op in (scatter, reduce))
        return [gather.changed(**every, saved=kept_bytes, only_backward=back)]
    return [gather.changed(only_backward=(scatter, reduce, again))]


def leave_tensor(rank: Rank, name: str, part: str, width: float | None = None) -> list[Op]:
    """Reduce the partial outputs of sharded linear layers; reduce-scatter where the sequence is sharded.

    One rank has nothing to reduce.

    Args:
        rank: the batch, the shard and its kernels.
        name: name of the block that they leave.
        part: part of the layer that it belongs to.
        width: bytes of a reduced element, forward and backward; by default those of the formats.
    """
    if not (rank.tensor > 1).any():
        return []
    sharded, unsharded = _groups(rank)
    size, formats = rank.tokens * rank.model.hidden, rank.formats
    gathered = size * (formats.gradient_width if width is None else width)
    reduced = size * (formats.partial_width if width is None else width)
    gather = _collective(name, part, "output", "all_gather", gathered, sharded, "input")
    scatter = _collective(name, part, "output", "reduce_scatter", reduced, sharded)
    reduce = _collective(name, part, "output", "all_reduce", reduced, unsharded)
    return [scatter.changed(only_backward=(gather,)), reduce]


def _groups(rank: Rank) -> tuple[Size, Size]:
    """Group sizes of reduce-scatter (sequence sharded) and of all-reduce (not sharded)."""
    sequence = np.asarray(rank.shard.sequence_parallel, dtype=bool)
    return np.where(sequence, rank.tensor, 1.0), np.where(sequence, 1.0, rank.tensor)


def _collective(
    name: str, part: str, end: End, operation: str, size: Size, ranks: Size, gradient: Gradient = ""
) -> Collective:
    return Collective(
        name=f"{name}.{operation}",
        kind="tensor",
        part=part,
        operation=operation,
        end=end,
        bytes=size,
        size=ranks,
        launches=np.where(np.asarray(ranks) > 1, 1.0, 0.0),
        gradient=gradient,
    )
