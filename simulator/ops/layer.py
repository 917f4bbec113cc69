"""One layer of a model as a list of ops."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache, partial

import numpy as np

from simulator.models import LayerKind
from simulator.ops import elementwise as passes
from simulator.ops.attention import attention
from simulator.ops.build import enter_tensor, kernel, leave_tensor
from simulator.ops.cross import cross_attention
from simulator.ops.experts import expert_mlp, shards_tokens
from simulator.ops.linear_attention import linear_attention
from simulator.ops.mlp import dense_mlp
from simulator.ops.op import Op
from simulator.ops.rank import Rank

MIXERS: dict[str, Callable[[Rank], list[Op]]] = {
    "full": attention,
    "sliding": partial(attention, kind="sliding"),
    "linear": linear_attention,
    "cross": attention,
    "source": attention,
}
"""The ops of each kind of attention; a new kind is a file with its ops and an entry here."""


def layer(
    rank: Rank, kind: str = "full", experts: bool = False, mlp: bool = True, width: int = 0
) -> list[Op]:
    """Forward ops of one layer; ``backward`` of them is its backward pass.

    Args:
        rank: the batch, the shard, and which kernels run.
        kind: of attention: full, sliding, linear, cross or none.
        experts: whether the MLP is a mixture of experts.
        mlp: whether the layer has an MLP.
        width: inner width of its dense MLP; 0: the model's.
    """
    return layers(rank, [LayerKind(kind, experts, mlp, width)])[0]


def layers(rank: Rank, kinds: Iterable[LayerKind]) -> list[list[Op]]:
    """Forward ops of one layer of each kind; kinds with an equal part share its op objects."""
    mixer, mlp, norms = (cache(partial(ops, rank)) for ops in (_mixer, _mlp, around))
    listed = []
    for kind in kinds:
        joint = rank.model.parallel_block and kind.parts == 2
        block = [
            *mixer(kind.mixer, not joint),
            *(mlp(kind.experts, kind.width, not joint) if kind.mlp else []),
        ]
        listed.append([*(_reduced(rank, "layer", "mlp", block) if joint else block), *norms(kind.parts)])
    return listed


def _mixer(rank: Rank, kind: str, reduced: bool) -> list[Op]:
    if kind == "none":
        return []
    rank = _shaped(rank, LayerKind(kind))
    ops = MIXERS[kind](rank)
    ops = _reduced(rank, "attention", "projections", ops) if reduced else ops
    return [*ops, *_reduced(rank, "cross", "projections", cross_attention(rank))] if kind == "cross" else ops


def _shaped(rank: Rank, kind: LayerKind) -> Rank:
    """The rank of a model with the shape of a kind of layers."""
    model = rank.model.of_kind(kind)
    return rank if model is rank.model else replace(rank, model=model)


def _mlp(rank: Rank, experts: bool, width: int, reduced: bool) -> list[Op]:
    rank = _shaped(rank, LayerKind(width=width))
    ops = expert_mlp(rank) if experts else dense_mlp(rank)
    return _reduced(rank, "mlp", "mlp", ops) if reduced and not (experts and shards_tokens(rank)) else ops


def _reduced(rank: Rank, name: str, part: str, ops: list[Op]) -> list[Op]:
    """Ops between the gather of their input and the reduction of their output over tensor-parallel ranks."""
    entered = enter_tensor(rank, f"{name}_input", part, products=_products(rank, name))
    return [*entered, *ops, *leave_tensor(rank, f"{name}_output", part)]


def _products(rank: Rank, name: str) -> float:
    """Products that read the input of a block: query, key and value; up projection and gate."""
    attention, mlp = 3.0, 2.0 if rank.model.gated else 1.0
    return {"attention": attention, "mlp": mlp, "cross": 1.0}.get(name, attention + mlp)


def around(rank: Rank, parts: int) -> list[Op]:
    """Norms and residual sums of one layer, over the sequence's shards where it is sharded.

    Args:
        rank: the batch, the shard, and which kernels run.
        parts: 1 to 3: attention, cross-attention, MLP.
    """
    model, how = rank.model, rank.how
    elements = rank.tokens / rank.spread * model.hidden
    norms = 1 if model.parallel_block else model.norms_of(parts)
    # Only RMSNorm is composite.
    fusion = "fused" if how.norm == "composite" and model.norm != "rmsnorm" else how.norm
    count = passes.NORMS[fusion]
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
        # Attention and MLP both save the input of their norm.
        saved=parts * passes.NORMS_KEPT[fusion] * rank.width * elements,
        parameters=float(model.norms_of(parts) * model.norm_width),
    )
    if how.joins_residual:
        return [norm]
    residual = passes.RESIDUAL[how.elementwise, how.dropout]
    mask = parts * elements if how.dropout else np.zeros(())
    times = float(parts)
    op = kernel(rank, "residual", "elementwise", residual, elements, part="around", repeats=times, saved=mask)
    return [norm, op.changed(variant="elementwise")]
