"""KV storage: paged blocks, with or without a prefix cache."""

from simulator.serving.replica.kv.chunks import ChunkBlocks
from simulator.serving.replica.kv.linked import LinkedBlocks
from simulator.serving.replica.kv.paged import PagedBlocks
from simulator.serving.replica.kv.prefix import PrefixBlocks
from simulator.serving.replica.kv.tiers import TieredBlocks, TierStore
from simulator.serving.replica.kv.unified import UnifiedBlocks

__all__ = [
    "ChunkBlocks",
    "LinkedBlocks",
    "PagedBlocks",
    "PrefixBlocks",
    "TierStore",
    "TieredBlocks",
    "UnifiedBlocks",
]
