"""KV in blocks of equal size, counted and not listed (Kwon et al., PagedAttention, SOSP 2023)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from simulator.serving.replica.sequence import Sequence
from simulator.serving.workload.request import Request


class PagedBlocks:
    """Counters of one rank's KV blocks.

    The oldest freed blocks are allocated first, so a preempted sequence finds its leading blocks until all
    blocks freed before them have been allocated (``ghost``); without prefix caching it finds none.
    """

    __slots__ = ("block_tokens", "free", "keeps_freed", "sequences", "taken", "total")

    shares: ClassVar[bool] = False
    """Whether sequences share blocks, and so `computed` matters."""
    alone: ClassVar[bool] = True
    """Whether only the replica's own steps change what it caches: no tier of other replicas."""
    moves: ClassVar[bool] = False
    """Whether an admission may wait for reads and writes on shared links (`wait_seconds`)."""

    def __init__(self, total: int, block_tokens: int, keeps_freed: bool) -> None:
        self.total = self.free = total
        self.block_tokens = block_tokens
        self.keeps_freed = keeps_freed
        self.taken = 0
        """Blocks allocated since the start of the run."""
        self.sequences = 0
        """Admitted sequences, over all micro batches in flight of a pipeline."""

    @property
    def shared(self) -> int:
        """Blocks of units that sequences share and use."""
        return 0

    def in_units(self, sequence: Sequence) -> int:
        """Blocks of a sequence that lie in shared units."""
        return 0

    def beside(self, sequences: Iterable[Sequence]) -> int:
        """Tokens' room that sequences take beside their KV (adapters in the same memory)."""
        return 0

    def blocks(self, tokens: int) -> int:
        """Blocks that hold the given tokens."""
        return -(-tokens // self.block_tokens)

    def match(self, sequence: Sequence) -> int:
        """Tokens of a waiting sequence that the cache holds; the last token is always computed."""
        if sequence.loaded:
            return sequence.loaded
        repeated = sequence.request.cached if self.keeps_freed else 0
        if repeated:
            repeated = min(repeated, sequence.target - 1) // self.block_tokens * self.block_tokens
        if sequence.ghost is None:
            return repeated
        taken, free, blocks = sequence.ghost
        left = blocks - max(self.taken - taken - free, 0)
        full_blocks = (sequence.target - 1) // self.block_tokens
        return max(max(min(left, full_blocks), 0) * self.block_tokens, repeated)

    def cached(self, request: Request) -> int:
        """Tokens of the request's prompt that the cache holds."""
        return request.cached if self.keeps_freed else 0

    def in_memory(self, request: Request) -> int:
        """Tokens of the request's prompt that device memory holds."""
        return self.cached(request)

    def read_seconds(self, sequence: Sequence) -> float:
        """Seconds to read an admitted sequence's cached KV from tiers below device memory."""
        return 0.0

    def wait_seconds(self, sequence: Sequence, now: float) -> float:
        """Begin the reads and writes of an admitted sequence; returns the seconds that its step waits longer
        for them."""
        return 0.0

    def hold(self, sequence: Sequence, tokens: int, cached: int = 0) -> bool:
        """Allocate blocks for the sequence's first ``tokens``; False (and none) if too few are free."""
        need = -(-tokens // self.block_tokens) - sequence.blocks
        if need <= 0:
            return True
        if need > self.free:
            return False
        self.free -= need
        self.taken += need
        sequence.blocks += need
        return True

    def grow(self, blocks: int) -> None:
        """Take blocks for new tokens of decoding sequences; the caller knows that they are free."""
        self.free -= blocks
        self.taken += blocks

    def computed(self, sequence: Sequence) -> None:
        """Record that the sequence's KV now reaches ``sequence.computed`` tokens."""

    def release(self, sequence: Sequence, tokens: int, preempted: bool = False) -> None:
        """Free all blocks of a sequence that holds ``tokens`` tokens."""
        blocks = -(-tokens // self.block_tokens)
        if preempted and self.keeps_freed:
            # Only full blocks are cached.
            sequence.ghost = (self.taken, self.free, tokens // self.block_tokens)
        self.free += blocks
        sequence.blocks = 0
