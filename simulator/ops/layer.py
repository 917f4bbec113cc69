"""One layer of a model as a list of ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from simulator.models import LayerKind
from simulator.ops import elementwise as passes
from simulator.ops.attention import attention
from simulator.ops.build import enter_tensor, kernel, leave_tensor
from simulator.ops.experts import expert_mlp, shards_tokens
from simulator.ops.linear_attention import linear_attention
from simulator.ops.mlp import dense_mlp
from simulator.ops.op import Op
from simulator.ops.rank import Rank

MIXERS: dict[str, Callable[[Rank], list[Op]]] = {
    "full": attention,
    "sliding": partial(attention, kind="sliding"),
    "linear": linear_attention,
}
"""The ops of each kind of attention; a new kind is a file with its ops and an entry here."""


def layer(rank: Rank, kind: str = "full", experts: bool = False, mlp: bool = True) -> list[Op]:
    """Forward ops of one layer; ``backward`` of them is its backward pass.

    Args:
        rank: the batch, the shard, and which kernels run.
        kind: of attention: full, sliding, linear or none.
        experts: whether the MLP is a mixture of experts.
        mlp: whether the layer has an MLP.
    """
    after = list(around(rank, LayerKind(kind, experts, mlp)))
    mixer = MIXERS[kind](rank) if kind != "none" else []
    inner = (expert_mlp(rank) if experts else dense_mlp(rank)) if mlp else []
    if rank.model.parallel_block and mixer and mlp:
        return [*_reduced(rank, "layer", "mlp", [*mixer, *inner]), *after]
    if mlp and not (experts and shards_tokens(rank)):
        inner = _reduced(rank, "mlp", "mlp", inner)
    if mixer:
        mixer = _reduced(rank, "attention", "projections", mixer)
    return [*mixer, *inner, *after]


def _reduced(rank: Rank, name: str, part: str, ops: list[Op]) -> list[Op]:
    """Ops between the gather of their input and the reduction of their output over tensor-parallel ranks."""
    return [*enter_tensor(rank, f"{name}_input", part), *ops, *leave_tensor(rank, f"{name}_output", part)]


def around(rank: Rank, kind: LayerKind) -> Iterator[Op]:
    """Norms and residual sums of one layer, over the sequence's shards where it is sharded."""
    model, how = rank.model, rank.how
    elements = rank.tokens / rank.spread * model.hidden
    norms = 1 if model.parallel_block else model.norms_of(kind)
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
        # Attention and MLP both save the input of their norm.
        kept=kind.parts * rank.width * elements,
        parameters=float(model.norms_of(kind) * model.norm_width),
    )
    yield norm
    if how.joins_residual:
        return
    residual = passes.RESIDUAL[how.elementwise, how.dropout]
    mask = kind.parts * elements if how.dropout else np.zeros(())
    times = float(kind.parts)
    op = kernel(rank, "residual", "elementwise", residual, elements, part="around", repeats=times, kept=mask)
    yield op.changed(variant="elementwise")
