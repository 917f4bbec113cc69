"""A layer as a list of ops for a batch of shapes: the only description of a layer."""

from __future__ import annotations

from simulator.ops.batch import Batch, Segment
from simulator.ops.ends import corrected_share, embedding, head
from simulator.ops.layer import layer, layers
from simulator.ops.op import (
    Attention,
    Collective,
    Decode,
    ExpertLayer,
    MemoryBound,
    Op,
    Product,
    Scan,
    StateStep,
    backward,
)
from simulator.ops.rank import SERVING, Formats, Implementation, Rank, Shard

__all__ = [
    "SERVING",
    "Attention",
    "Batch",
    "Collective",
    "Decode",
    "ExpertLayer",
    "Formats",
    "Implementation",
    "MemoryBound",
    "Op",
    "Product",
    "Rank",
    "Scan",
    "Segment",
    "Shard",
    "StateStep",
    "backward",
    "corrected_share",
    "embedding",
    "head",
    "layer",
    "layers",
]
