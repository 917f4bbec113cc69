"""Where KV lives: paged blocks, with or without a cache of prefixes."""

from simulator.serving.kv.paged import PagedBlocks
from simulator.serving.kv.prefix import PrefixBlocks

__all__ = ["PagedBlocks", "PrefixBlocks"]
