"""A tower as a list of ops: patches or frames, layers without a mask, the projector."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike

from simulator.models import Model
from simulator.models.towers import Projection, Shape, Tower
from simulator.ops import elementwise as passes
from simulator.ops.batch import Batch, Segment
from simulator.ops.build import kernel, linear
from simulator.ops.layer import layer
from simulator.ops.op import MemoryBound, Op
from simulator.ops.rank import Formats, Implementation, Rank, Shard

ONE_RANK = Shard()
WIDE = Formats()
EAGER = Implementation(joins_residual=True)
"""Kernels of towers in serving engines: fused norms, no cache."""


def block_of(tower: Tower) -> Model:
    """The layers of a tower as a model: a shape whose ops those of a layer are."""
    return Model.model_validate(
        {
            "name": tower.name,
            "layers": tower.layers,
            "hidden": tower.hidden,
            "heads": tower.heads,
            "head_dim": tower.hidden // tower.heads,
            "feed_forward": tower.feed_forward,
            "vocabulary": 1,
            "activation": "swiglu" if tower.gated else "gelu",
            "norm": tower.norm,
            "norms_per_layer": tower.norms,
            "qk_norm": tower.qk_norm,
            "position": "rope" if tower.rope else "none",
            "bias": tower.bias,
            "qkv_bias": tower.qkv_bias,
        }
    )


def tower_ops(
    tower: Tower,
    shape: Shape,
    images: ArrayLike = 1,
    shard: Shard = ONE_RANK,
    formats: Formats = WIDE,
    how: Implementation = EAGER,
) -> list[Op]:
    """Forward ops of a whole tower on one rank; an op's ``repeats`` counts the layers that run it.

    Args:
        tower: sizes.
        shape: patches of one picture.
        images: pictures of that shape that are encoded together, shape (cases,).
        shard: tensor-parallel ranks of its layers.
        formats: of weights and activations.
        how: kernels.
    """
    count = np.multiply(images, float(shape.sequences))
    patches = np.multiply(count, float(shape.rows * shape.columns))
    model = block_of(tower)
    rows = np.maximum(patches / (tower.merge**2 * tower.pooled), 1.0)
    tower_batch = Batch(
        (Segment(count, float(shape.rows * shape.columns), float(shape.rows * shape.columns), causal=False),)
    )
    rank = Rank(model, tower_batch, shard, formats, how)
    windowed = tower.layers - tower.full_layers if tower.window else 0
    ops = list(_stem(rank, tower, patches))
    elements = patches * tower.hidden
    ops.append(kernel(rank, "positions", "elementwise", passes.PLAIN["fused"], elements, part="end"))
    if windowed:
        window = float(min(tower.window, shape.rows) * min(tower.window, shape.columns))
        parts = Batch((Segment(patches / window, window, window, causal=False),))
        ops += _repeated(layer(Rank(model, parts, shard, formats, how)), windowed, "windowed ")
    ops += _repeated(layer(rank), tower.layers - windowed, "")
    ops += list(_projector(rank, tower.projections, rows, 1, "projector"))
    ops += list(_projector(rank, tower.stacked, rows, tower.taps, "stacked"))
    return ops


def _stem(rank: Rank, tower: Tower, patches: np.ndarray) -> Iterator[Op]:
    """What makes patches: one product over pixels, or convolutions over frames with an activation each."""
    dtype = rank.formats.core
    if not tower.stem:
        sizes = tower.hidden, tower.patch_inputs
        yield from linear(rank, "patch_embedding", "", *sizes, part="end", bias=tower.patch_bias, dtype=dtype)
    for number, each in enumerate(tower.stem):
        rows, name, sizes = each.rate * patches, f"stem.{number}", (each.outputs, each.inputs)
        yield from linear(rank, name, "", *sizes, part="end", tokens=rows, bias=each.bias, dtype=dtype)
        moved_bytes = 2 * rank.width * rows * each.outputs
        yield MemoryBound(name=f"{name}.activation", kind="elementwise", part="end", bytes=moved_bytes)


def _repeated(ops: list[Op], times: int, prefix: str) -> list[Op]:
    return [
        op.changed(
            name=prefix + op.name,
            repeats=op.repeats * times,
            launches=op.launches * times,
            parameters=op.parameters * times,
            saved=op.saved * times,
        )
        for op in ops
        if times
    ]


def _projector(
    rank: Rank, projections: tuple[Projection, ...], rows: np.ndarray, times: int, name: str
) -> Iterator[Op]:
    """Linear layers over merged patches, each behind an activation or a norm, sharded in turn."""
    for number, projection in enumerate(projections):
        bytes_moved = 2 * rank.width * rows * projection.inputs
        before = MemoryBound(name=f"{name}.{number}.input", kind="elementwise", part="end", bytes=bytes_moved)
        product = linear(
            rank,
            f"{name}.{number}",
            "",
            projection.outputs / rank.tensor,
            projection.inputs,
            part="end",
            tokens=rows,
            dtype=rank.formats.core,
            bias=projection.bias,
        )
        yield from _repeated([before, *product], times, "")


def tower_parameters(tower: Tower) -> int:
    """Parameters of a tower with its projector."""
    shape = Shape(1, tower.merge, tower.merge, 1)
    ops = tower_ops(tower, shape)
    return round(sum(float(np.sum(op.parameters)) for op in ops)) + tower.vectors
