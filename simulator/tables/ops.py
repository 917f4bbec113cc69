"""A batch of a recommendation model as lists of ops of one device, by what they wait for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from core.records import record
from hwmodels.kernels.chip import ELEMENT_BYTES
from simulator.ops.gather import distinct_rows, gathered_bytes
from simulator.ops.op import Collective, MemoryBound, Op, Product
from simulator.tables.setting import TablesSetting
from simulator.tables.shards import Pieces

Array = NDArray[np.float64]

KEY_BYTES = 4.0
"""Of a row's number."""
KEY_LAUNCHES = 8.0
"""Kernels that label keys with their device, deal them and sort them in passes."""


def layers(setting: TablesSetting, part: str, inputs: int, widths: Sequence[int]) -> Iterator[Op]:
    """Linear layers with an activation each."""
    work, rows = setting.workload, setting.samples
    size = ELEMENT_BYTES[work.mlp]
    for number, width in enumerate(widths):
        yield Product(
            name=f"{part}.{number}",
            kind="gemm",
            m=rows,
            n=float(width),
            k=float(inputs),
            dtype=work.mlp,
            frozen_input=part == "bottom" and number == 0,
            parameters=float(inputs * width),
            launches=1.0,
        )
        if not setting.library.fused:
            traffic = 2.0 * size * rows * width
            yield MemoryBound(
                name=f"{part}.{number}.activation",
                kind="activation",
                bytes=traffic,
                backward_bytes=1.5 * traffic,
            )
        inputs = width


def interaction(setting: TablesSetting) -> Iterator[Op]:
    """What joins the pooled vectors and the bottom MLP's output."""
    model, work, rows = setting.model, setting.workload, setting.samples
    size, how = ELEMENT_BYTES[work.mlp], model.interaction
    joined = float(model.joined)
    if how.kind == "dot" and setting.library.fused:
        # One kernel reads vectors and writes pairs; its backward kernel reads both and writes vectors.
        read, written = size * rows * joined, size * rows * model.interacted
        yield MemoryBound(
            name="pairs", kind="copy", bytes=read + written, backward_bytes=2.0 * read + written
        )
        return
    traffic = 2.0 * size * rows * joined
    yield MemoryBound(name="join", kind="copy", bytes=traffic, backward_bytes=traffic)
    if how.kind == "dot":
        vectors = float(len(model.rows) + 1)
        yield Product(
            name="pairs",
            kind="gemm",
            groups=rows,
            m=vectors,
            n=vectors,
            k=float(model.width),
            dtype=work.mlp,
            weights=False,
        )
    for number in range(how.layers):
        for name, outputs, inputs in (("down", float(how.rank), joined), ("up", joined, float(how.rank))):
            yield Product(
                name=f"cross.{number}.{name}",
                kind="gemm",
                m=rows,
                n=outputs,
                k=inputs,
                dtype=work.mlp,
                parameters=inputs * outputs,
            )
        # The product with the first vector and the sum with the last: three read, one written.
        traffic = 4.0 * size * rows * joined
        yield MemoryBound(
            name=f"cross.{number}.product", kind="elementwise", bytes=traffic, backward_bytes=1.5 * traffic
        )


def dense_ops(setting: TablesSetting) -> tuple[list[Op], list[Op]]:
    """Forward ops of the bottom MLP, and of the interaction with the top MLP."""
    model = setting.model
    bottom = list(layers(setting, "bottom", model.dense, model.bottom))
    top = [*interaction(setting), *layers(setting, "top", model.interacted, model.top)]
    return bottom, top


def dense_parameters(setting: TablesSetting) -> float:
    """Parameters of both MLPs and of cross layers."""
    return float(sum(np.sum(op.parameters) for ops in dense_ops(setting) for op in ops))


@record()
class Reads:
    """Rows that a batch reads on one device, one entry a piece, shape (pieces,).

    Attributes:
        total: reads.
        distinct: rows that they touch.
        row_bytes: of a row of the piece.
        vectors: pooled vectors of full width that they make, all together.
    """

    total: Array
    distinct: Array
    row_bytes: Array
    vectors: float

    def with_copies(self, copies: Reads) -> Reads:
        """Reads of pieces and of copied tables on one device."""
        return Reads(
            np.concatenate([self.total, copies.total]),
            np.concatenate([self.distinct, copies.distinct]),
            np.concatenate([self.row_bytes, copies.row_bytes]),
            self.vectors + copies.vectors,
        )


def reads_of(setting: TablesSetting, pieces: Pieces) -> Reads:
    """Reads of pieces by the samples of all devices."""
    reads = setting.workload.batch * pieces.lookups
    vectors = float(setting.workload.batch * np.sum(pieces.vectors))
    return Reads(reads, _distinct(setting, reads, pieces.rows), setting.row_bytes * pieces.width, vectors)


def reads_of_copies(setting: TablesSetting, tables: NDArray[np.int64]) -> Reads:
    """Reads of copied tables by one device's own samples."""
    reads = setting.samples * setting.model.table_lookups[tables]
    distinct = _distinct(setting, reads, setting.model.table_rows[tables])
    sizes = np.full(len(tables), setting.row_bytes)
    return Reads(reads, distinct, sizes, setting.samples * len(tables))


def _distinct(setting: TablesSetting, reads: Array, rows: Array) -> Array:
    """Distinct rows among reads: as the workload says, else of even draws."""
    if setting.workload.repeats is None:
        return distinct_rows(reads, rows)
    return np.minimum(reads * (1.0 - setting.workload.repeats), rows)


def lookup_bytes(setting: TablesSetting, reads: Reads) -> Array:
    """Bytes from memory by piece, without the sums that are written."""
    cache = setting.cluster.device.l2_bytes
    return gathered_bytes(reads.total, reads.distinct, reads.row_bytes, cache)


def lookup_ops(setting: TablesSetting, reads: Reads) -> list[Op]:
    """One kernel that reads rows and writes their sums."""
    written = setting.vector_bytes * reads.vectors
    traffic = float(np.sum(lookup_bytes(setting, reads))) + written
    return [MemoryBound(name="lookup", kind="embedding", bytes=traffic)]


def key_ops(setting: TablesSetting, reads: Reads) -> list[Op]:
    """Keys of the next batch on their way to the devices of their rows."""
    total = float(np.sum(reads.total))
    return [exchange(setting, "keys", KEY_BYTES * total)] if setting.devices > 1 else []


def update_ops(setting: TablesSetting, reads: Reads) -> list[Op]:
    """Gradients of rows, summed over the samples that read them, and the optimizer on the rows touched."""
    share = float(np.sum(reads.total * reads.row_bytes)) / setting.row_bytes
    read = gathered_bytes(
        share, min(reads.vectors, share), setting.vector_bytes, setting.cluster.device.l2_bytes
    )
    rows = float(np.sum(reads.distinct * reads.row_bytes)) / setting.row_bytes
    gradient = 4.0 * setting.model.width * rows
    changed = 2.0 * rows * (setting.row_bytes + setting.state_bytes)
    return [
        MemoryBound(name="gradients", kind="embedding", bytes=float(read) + gradient),
        MemoryBound(name="optimizer", kind="optimizer", bytes=gradient + changed),
    ]


def exchange(setting: TablesSetting, name: str, bytes_: float) -> Collective:
    """An all-to-all among all devices of a buffer of ``bytes_``."""
    size = float(setting.devices)
    return Collective(
        name=name, kind="exchange", operation="all_to_all", bytes=bytes_, size=size, launches=1.0
    )


def vector_ops(setting: TablesSetting, vectors: float, node_vectors: float) -> list[Op]:
    """Pooled vectors on their way to the devices of their samples; gradients take it backwards.

    Args:
        setting: the question.
        vectors: that the device with the most of them makes.
        node_vectors: those that a device of the busiest node sends to other nodes, once the node has summed.
    """
    if setting.devices == 1:
        return []
    sent, within = setting.vector_bytes * vectors, setting.node_devices
    if not setting.sums_in_nodes:
        return [exchange(setting, "vectors", sent)]
    across = setting.vector_bytes * node_vectors
    return [_vectors("node", sent, within, 1), _vectors("nodes", across, setting.devices / within, within)]


def _vectors(name: str, bytes_: float, size: float, stride: int) -> Collective:
    return Collective(
        name=name,
        kind="exchange",
        operation="all_to_all",
        bytes=bytes_,
        size=float(size),
        stride=float(stride),
        launches=1.0,
    )


def reduce_ops(setting: TablesSetting, copied: NDArray[np.int64]) -> list[Op]:
    """Gradients of MLPs and of copied tables, summed over all devices."""
    if setting.devices == 1 or not setting.trains:
        return []
    size = ELEMENT_BYTES[setting.workload.mlp] * dense_parameters(setting)
    size += setting.vector_bytes * float(np.sum(setting.model.table_rows[copied]))
    return [
        Collective(
            name="gradients",
            kind="reduce",
            operation="all_reduce",
            bytes=size,
            size=float(setting.devices),
            launches=1.0,
        )
    ]


def dense_update(setting: TablesSetting) -> list[Op]:
    """The optimizer on MLPs: 32-bit weights and states, and the narrow copy."""
    if not setting.trains:
        return []
    traffic = (4.0 * 3 + 2 * ELEMENT_BYTES[setting.workload.mlp]) * dense_parameters(setting)
    return [MemoryBound(name="dense", kind="optimizer", bytes=traffic)]
