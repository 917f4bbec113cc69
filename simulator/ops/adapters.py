"""Ops of low-rank adapters beside the frozen products of a layer."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from simulator.ops.op import MemoryBound, Op, Product
from simulator.ops.rank import Formats
from simulator.state.adapter import BASE_BYTES, PARTS, WORKING, Adapter

OF_ATTENTION = "attention_output", "linear_output"
"""Products whose input is the output of attention or of a scan."""

KEEPS_INPUTS = "nf4", "int8"
"""Formats of frozen weights whose products keep their inputs although the weights have no gradient
(bitsandbytes, autograd/_functions.py: MatMul4Bit, MatMul8bitLt)."""

MARK = " adapter"
"""End of the name of an adapter's product."""


def is_adapter(op: Op) -> bool:
    """Whether an op is a product of an adapter, which is trained."""
    return op.name.endswith(MARK)


def with_adapters(layers: Iterable[list[Op]], adapter: Adapter, formats: Formats) -> list[list[Op]]:
    """Layers with the products of adapters behind those that they stand beside.

    An adapter's first factor reads and keeps the product's input, after a dropout where it has one; its
    second keeps the first one's small output and adds to the product's output (Hu et al. 2021, LoRA). A
    frozen product keeps nothing for its backward pass: its weight has no gradient (Transformer Engine,
    linear.py: backward_needs_input).
    Layers that share an op share its adapters.

    Args:
        layers: forward ops of one layer of each kind.
        adapter: rank, targets and format of the frozen weights.
        formats: of weights and activations.
    """
    adapted: dict[int, list[Op]] = {}

    def of(op: Op) -> list[Op]:
        if id(op) not in adapted:
            adapted[id(op)] = _adapted(op, adapter, formats)
        return adapted[id(op)]

    return [[each for op in ops for each in of(op)] for ops in layers]


def _adapted(op: Op, adapter: Adapter, formats: Formats) -> list[Op]:
    if not isinstance(op, Product) or not op.weights or not np.any(op.parameters):
        return [op]
    width = formats.width
    saved = op.saved * width / (formats.kept_width if op.dtype == formats.linear else width)
    # Attention keeps its output for its own backward pass.
    keeps = op.module in OF_ATTENTION or adapter.base in KEEPS_INPUTS
    frozen = op.changed(saved=saved if keeps else 0.0)
    decode: list[Op] = []
    if adapter.is_coded(op.dtype):
        bytes_moved = op.parameters * (BASE_BYTES[adapter.base] + WORKING)
        name = f"{op.name} decode"
        decode.append(
            MemoryBound(name=name, kind="copy", part=op.part, bytes=bytes_moved, backward_bytes=bytes_moved)
        )
    if not {PARTS.get(op.part), op.name} & set(adapter.targets):
        return [frozen, *decode]
    rank, rows = float(adapter.rank), op.m * op.groups * op.repeats
    bare = {"saved": 0.0, "intermediate": 0.0, "only_backward": (), "dtype": "bf16"}
    first = {"n": rank, "parameters": op.groups * rank * op.k, **bare, "saved": saved}
    second = {"k": rank, "parameters": op.groups * rank * op.n, **bare, "saved": rows * rank * width}
    read, size = rows * op.k * width, rows * op.n * width
    drops: list[Op] = []
    if adapter.dropout:
        # torch.nn.Dropout writes the input and a mask of a byte; its backward pass reads both and writes.
        moved_bytes = 2 * read + rows * op.k
        name = f"{op.name} dropout"
        dropped = MemoryBound(
            name=name,
            kind="elementwise",
            part=op.part,
            bytes=moved_bytes,
            backward_bytes=moved_bytes,
            saved=rows * op.k,
        )
        drops.append(dropped)
    # The second product's output is scaled (read, written) and added (two read, one written). Backward its
    # gradient is scaled, and the input's gradients by both ways are added.
    added = MemoryBound(
        name=f"{op.name} sum",
        kind="elementwise",
        part=op.part,
        launches=2.0,
        bytes=5 * size,
        backward_bytes=2 * size + 3 * read,
        backward_launches=2.0,
    )
    return [
        op.changed(saved=0.0),
        *decode,
        *drops,
        op.changed(name=f"{op.name} first{MARK}", **first),
        op.changed(name=f"{op.name} second{MARK}", **second),
        added,
    ]
