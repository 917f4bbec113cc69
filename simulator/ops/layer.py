"""One layer of a model as a list of ops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from simulator.ops import elementwise as passes
from simulator.ops.attention import attention
from simulator.ops.build import enter_tensor, kernel, leave_tensor
from simulator.ops.experts import expert_mlp, shards_tokens
from simulator.ops.mlp import dense_mlp
from simulator.ops.op import Op
from simulator.ops.rank import Rank


def layer(rank: Rank, kind: str = "full", experts: bool = False) -> list[Op]:
    """Forward ops of one layer; ``backward`` of them is its backward pass.

    Args:
        rank: the batch, the shard, and which kernels run.
        kind: of attention, full or sliding.
        experts: whether the MLP is a mixture of experts.
    """
    mixer, mlp = attention(rank, kind), expert_mlp(rank) if experts else dense_mlp(rank)
    if rank.model.parallel_block:
        return [*_reduced(rank, "layer", "mlp", [*mixer, *mlp]), *around(rank)]
    if not (experts and shards_tokens(rank)):
        mlp = _reduced(rank, "mlp", "mlp", mlp)
    return [*_reduced(rank, "attention", "projections", mixer), *mlp, *around(rank)]


def _reduced(rank: Rank, name: str, part: str, ops: list[Op]) -> list[Op]:
    """Ops between the gather of their input and the reduction of their output over tensor-parallel ranks."""
    return [*enter_tensor(rank, f"{name}_input", part), *ops, *leave_tensor(rank, f"{name}_output", part)]


def around(rank: Rank) -> Iterator[Op]:
    """Norms and residual sums of one layer, over the sequence's shards where it is sharded."""
    model, how = rank.model, rank.how
    elements = rank.tokens / rank.spread * model.hidden
    norms = 1 if model.parallel_block else model.norms_per_layer
    composite = how.composite_norm and model.norm == "rmsnorm"
    count = passes.COMPOSITE_NORM if composite else passes.NORM
    if how.joins_residual:
        count = passes.RESIDUAL_NORM
    norm = kernel(
        rank,
        "norm",
        "norm",
        count,
        elements,
        part="around",
        variant=passes.VARIANTS[model.norm],
        repeats=float(norms),
        # Attention and MLP each keep what their norm reads.
        kept=2 * rank.width * elements,
        parameters=float(model.norm_parameters),
    )
    yield norm
    if how.joins_residual:
        return
    residual = passes.RESIDUAL[how.elementwise, how.dropout]
    mask = 2 * elements if how.dropout else np.zeros(())
    op = kernel(rank, "residual", "elementwise", residual, elements, part="around", repeats=2.0, kept=mask)
    yield replace(op, variant="elementwise")
