"""Seconds, memory and exchanged bytes of an epoch of a graph neural network.

Partitions exchange copies of vertices at every layer, forward and backward: replicas x vertices x width.
Stages pass each vertex on once, whatever the layers of a stage (GNNPipe, arXiv 2308.10087); chunks of
vertices follow each other through the stages, and read those of later chunks as the epoch before left them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np

from core.errors import InfeasibleError
from core.records import record
from hwmodels.device import LIBRARY_BYTES
from hwmodels.kernels.chip import ELEMENT_BYTES
from simulator.graphs.question import GraphSetting
from simulator.ops.gather import distinct_rows, gathered_bytes
from simulator.ops.op import Collective, MemoryBound, Op, Product, backward
from simulator.pricing import Prices, price

INDEX_BYTES = 8.0
"""Of an edge: the neighbour's number and the edge's weight."""
KEPT = 3.0
"""Tensors of a layer that the backward pass reads: input, sum over neighbours, output."""


@record()
class Epoch:
    """A predicted epoch.

    Attributes:
        setting: the question.
        kernels_s: of one stage over all chunks, forward and backward.
        exchange_s: among partitions, likewise.
        reduce_s: gradients over partitions.
        bubble_s: in which a stage waits for the first and after the last chunk.
        epoch_s: all together.
        boundary_bytes: that stages pass on in an epoch, over all devices.
        replica_bytes: that partitions exchange in an epoch, over all devices.
        memory_bytes: of a device, by part.
    """

    setting: GraphSetting
    kernels_s: float
    exchange_s: float
    reduce_s: float
    bubble_s: float
    epoch_s: float
    boundary_bytes: float
    replica_bytes: float
    memory_bytes: Mapping[str, float]


def layer_ops(setting: GraphSetting, vertices: float, edges: float) -> Iterator[Op]:
    """One layer over some vertices: sums over neighbours, products with weights, elementwise kernels."""
    model, work = setting.model, setting.workload
    size, width = ELEMENT_BYTES[work.dtype], float(model.hidden)
    row = size * width
    read = gathered_bytes(edges, distinct_rows(edges, work.vertices), row, setting.cluster.device.l2_bytes)
    traffic = float(read) + INDEX_BYTES * edges + row * vertices
    yield MemoryBound(name="neighbours", kind="embedding", bytes=traffic, backward_bytes=traffic)
    for number in range(model.products):
        yield Product(
            name=f"weights.{number}",
            m=vertices,
            n=width,
            k=width,
            dtype=work.dtype,
            parameters=width * width,
        )
    if model.passes:
        passed = model.passes * row * vertices
        yield MemoryBound(name="elementwise", kind="elementwise", bytes=passed, backward_bytes=passed)


def exchange_ops(setting: GraphSetting) -> list[Op]:
    """What a device receives of copies for one layer of one chunk."""
    layout, work = setting.layout, setting.workload
    if layout.partitions == 1:
        return []
    size = ELEMENT_BYTES[work.dtype] * setting.model.hidden
    copies = work.replicas * work.vertices / layout.partitions / layout.chunks
    # A buffer of an all-to-all counts the part that stays.
    buffer = size * copies * layout.partitions / (layout.partitions - 1)
    return [
        Collective(
            name="copies",
            kind="exchange",
            operation="all_to_all",
            bytes=buffer,
            size=float(layout.partitions),
            launches=1.0,
        )
    ]


def end_ops(setting: GraphSetting, vertices: float) -> list[Op]:
    """The products with input features and to classes."""
    model, work = setting.model, setting.workload
    hidden = float(model.hidden)
    sizes = (("features", hidden, float(work.features)), ("classes", float(work.classes), hidden))
    return [
        Product(
            name=name,
            m=vertices,
            n=n,
            k=k,
            dtype=work.dtype,
            parameters=n * k,
            frozen_input=name == "features",
        )
        for name, n, k in sizes
    ]


def seconds_of(ops: Iterable[Op], prices: Prices) -> float:
    """Seconds of a list of ops one after the other."""
    return float(sum(np.sum(time) for time in price(list(ops), prices)))


def predict_epoch(setting: GraphSetting) -> Epoch:
    """Predict one epoch.

    Raises:
        InfeasibleError: a device lacks memory.
    """
    model, work, layout = setting.model, setting.workload, setting.layout
    memory = memory_of(setting)
    if (needed := sum(memory.values())) > (there := setting.cluster.device.memory_bytes):
        listed = ", ".join(f"{name} {size / 1e9:.1f} GB" for name, size in memory.items())
        raise InfeasibleError(
            f"a device needs {needed / 1e9:.1f} GB ({listed}); {setting.cluster.device.name} has "
            f"{there / 1e9:.1f}; more stages or partitions would help"
        )
    prices = Prices(setting.cluster.device.kernels.sustained(), setting.cluster)
    parts = layout.partitions * layout.chunks
    vertices, edges = work.vertices / parts, work.edges / parts
    layers = -(-model.layers // layout.stages)
    forward = list(layer_ops(setting, vertices, edges))
    copies = seconds_of(exchange_ops(setting), prices)
    ends = end_ops(setting, vertices)
    # The first stage has the features, the last the classes: the longest stage has one of both, or both.
    extra = [
        seconds_of(each, prices) for each in (ends[:1], ends[1:], backward(ends[:1]), backward(ends[1:]))
    ]
    both = max if layout.stages > 1 else (lambda a, b: a + b)
    kernels = (
        layers * seconds_of(forward, prices) + both(extra[0], extra[1]),
        layers * seconds_of(backward(forward), prices) + both(extra[2], extra[3]),
    )
    sent = ELEMENT_BYTES[work.dtype] * model.hidden * vertices
    send = 0.0
    if layout.stages > 1:
        stride = layout.partitions
        send = float(setting.cluster.collective("send_receive", sent, 2, stride))
    rounds = layout.chunks + layout.stages - 1
    passes = [max(time + layers * copies, send) for time in kernels]
    reduce = _reduce_seconds(setting, prices, layers)
    edges_between = layout.stages - 1
    row = ELEMENT_BYTES[work.dtype] * model.hidden * work.vertices
    return Epoch(
        setting=setting,
        kernels_s=layout.chunks * sum(kernels),
        exchange_s=2 * layout.chunks * layers * copies,
        reduce_s=reduce,
        bubble_s=(layout.stages - 1) * sum(passes),
        epoch_s=rounds * sum(passes) + reduce,
        boundary_bytes=2.0 * edges_between * row,
        replica_bytes=2.0 * model.layers * work.replicas * row if layout.partitions > 1 else 0.0,
        memory_bytes=memory,
    )


def _reduce_seconds(setting: GraphSetting, prices: Prices, layers: int) -> float:
    """Seconds of gradients of weights over partitions."""
    partitions = setting.layout.partitions
    if partitions == 1:
        return 0.0
    weights = 4.0 * layers * setting.model.products * setting.model.hidden**2
    summed = Collective(
        name="gradients", kind="reduce", operation="all_reduce", bytes=weights, size=float(partitions)
    )
    return seconds_of([summed], prices)


def memory_of(setting: GraphSetting) -> dict[str, float]:
    """Bytes of a device by part; a stage keeps its layers' tensors of all chunks."""
    model, work, layout = setting.model, setting.workload, setting.layout
    layers = -(-model.layers // layout.stages)
    vertices = work.vertices / layout.partitions
    copies = work.replicas if layout.partitions > 1 else 0.0
    row = ELEMENT_BYTES[work.dtype] * model.hidden
    weights = layers * model.products * model.hidden**2 + model.hidden * (work.features + work.classes)
    return {
        "vertices": KEPT * layers * row * vertices,
        "copies": layers * row * vertices * copies,
        "features": ELEMENT_BYTES[work.dtype] * work.features * vertices,
        "edges": INDEX_BYTES * work.edges / layout.partitions,
        "weights": 16.0 * weights,
        "workspace": LIBRARY_BYTES,
    }
