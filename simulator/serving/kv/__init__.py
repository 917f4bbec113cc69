"""Where KV lives: paged blocks, with or without a cache of prefixes."""

from simulator.serving.kv.paged import PagedBlocks

__all__ = ["PagedBlocks"]
