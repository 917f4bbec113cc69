"""Where KV lives: paged blocks, with or without a cache of prefixes."""

from simulator.serving.kv.paged import PagedBlocks
from simulator.serving.kv.prefix import PrefixBlocks
from simulator.serving.kv.tiers import Store, Tier, TieredBlocks

__all__ = ["PagedBlocks", "PrefixBlocks", "Store", "Tier", "TieredBlocks"]
