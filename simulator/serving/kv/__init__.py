"""KV storage: paged blocks, with or without a prefix cache."""

from simulator.serving.kv.paged import PagedBlocks
from simulator.serving.kv.prefix import PrefixBlocks
from simulator.serving.kv.tiers import Tier, TieredBlocks, TierStore

__all__ = ["PagedBlocks", "PrefixBlocks", "Tier", "TierStore", "TieredBlocks"]
