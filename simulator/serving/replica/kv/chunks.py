"""KV of retrieved documents, found in tiers wherever they stand in a prompt.

A document's KV is read from its tier, and a share of its tokens is computed again so that it attends to
what stands before it (Yao et al., CacheBlend, arXiv 2405.16444: about 0.15; Yang et al., APE, arXiv
2502.05431: 0).
Documents that no tier holds are computed, and written to the first tier in the background.
"""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.kv.paged import PagedBlocks
from simulator.serving.replica.sequence import Sequence
from simulator.serving.state.stores import Hits, KvTiers
from simulator.serving.workload.request import Request


class ChunkBlocks(PagedBlocks):
    """`PagedBlocks` that reads documents from tiers."""

    shares = True
    moves = True
    alone: ClassVar[bool] = False
    __slots__ = ("_hits", "tiers")

    def __init__(self, total: int, block_tokens: int, tiers: KvTiers) -> None:
        super().__init__(total, block_tokens, keeps_freed=False)
        self.tiers = tiers
        self._hits: tuple[Sequence | None, Hits] = (None, [])

    def cached(self, request: Request) -> int:
        """See `PagedBlocks.cached`."""
        return self.tiers.read_tokens(self._found(request))

    def in_memory(self, request: Request) -> int:
        """See `PagedBlocks.in_memory`: documents lie in tiers only."""
        return 0

    def match(self, sequence: Sequence) -> int:
        """See `PagedBlocks.match`; counts tokens of documents that need no computing."""
        in_memory = super().match(sequence)
        hits = [] if in_memory else self._found(sequence.request)
        if not self.tiers.sooner(hits, in_memory, sequence.target):
            hits = []
        self._hits = sequence, hits
        return min(in_memory + self.tiers.read_tokens(hits), sequence.target - 1)

    def wait_seconds(self, sequence: Sequence, now: float) -> float:
        """See `PagedBlocks.wait_seconds`."""
        matched, hits = self._hits
        return self.tiers.wait(hits if matched is sequence else [], now)

    def computed(self, sequence: Sequence) -> None:
        """Write the documents of a computed prompt that no tier holds."""
        if sequence.computed >= sequence.target:
            for document in dict.fromkeys(sequence.request.chunks):
                if self.tiers.find(document) is None:
                    self.tiers.put(document)

    def _found(self, request: Request) -> Hits:
        hits = ((document, self.tiers.find(document)) for document in request.chunks)
        return [(document, store) for document, store in hits if store is not None]
