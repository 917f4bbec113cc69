"""The dense MLP of a layer: up projection, activation, down projection."""

from __future__ import annotations

from simulator.ops import elementwise as passes
from simulator.ops.build import kernel, linear, separate_sums
from simulator.ops.op import MemoryBound, Op, Size
from simulator.ops.rank import Rank


def dense_mlp(rank: Rank) -> list[Op]:
    """One dense MLP."""
    return mlp_products(rank, "", rank.model.feed_forward / rank.tensor)


def mlp_products(rank: Rank, prefix: str, width: Size) -> list[Op]:
    """Both products of an MLP with this inner width on one rank, and the activation between them."""
    hidden = rank.model.hidden
    gates = 2 if rank.model.gated else 1
    kept_inputs = rank.tokens * hidden / rank.spread
    readers = gates if rank.how.separate_products else 1
    return [
        *separate_sums(rank, f"{prefix}input_sum", readers, "mlp"),
        *linear(rank, f"{prefix}up", "column", gates * width, hidden, part="mlp", keeps=kept_inputs),
        activation(rank, f"{prefix}activation", rank.tokens * width),
        *linear(rank, f"{prefix}down", "row", hidden, width, part="mlp"),
    ]


def activation(rank: Rank, name: str, elements: Size, part: str = "mlp") -> Op:
    """The activation, with the product of both halves where it is gated; ``elements`` of its output."""
    model, fusion = rank.model, rank.how.gated_activation or rank.how.elementwise
    table = passes.GATED if model.gated else passes.PLAIN
    inputs = 2 if model.gated else 1
    # Two separate kernels save the activated half beside both halves.
    between = 1 if model.gated and fusion == "eager" else 0
    op = kernel(
        rank,
        name,
        "activation",
        table[fusion],
        elements,
        part=part,
        variant=passes.VARIANTS.get(model.activation, ""),
        saved=(inputs + between) * rank.width * elements,
    )
    # Backward the gradients of its inputs lie beside them; that of its output takes the place of the output
    # (autograd's allocations, counted op by op).
    passing = inputs * rank.width * elements
    op = op.changed(intermediate=between * rank.width * elements, passing=passing)
    return _narrow(op, inputs * elements, rank.width) if model.gated and rank.how.narrow_activation else op


def _narrow(op: MemoryBound, inputs: Size, width: float) -> Op:
    """An activation that keeps its inputs, of this width in the working format, in 8 bits.

    Forward a kernel casts them, backward one restores them beside their gradients.
    """
    count, size = passes.NARROW_INPUT, inputs * width
    return op.changed(
        bytes=op.bytes + count.forward * size,
        backward_bytes=op.backward_bytes + count.backward * size,
        launches=op.launches + count.forward_launches,
        backward_launches=op.backward_launches + count.backward_launches,
        saved=op.saved - size + inputs,
        passing=2.0 * size,
    )
