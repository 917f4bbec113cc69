"""Prefix cache over tiers on shared links: an evicted unit is written down, and read where that is sooner.

The blocks of an evicted unit are free when it is written, so the step that evicts waits for the write. A
prefix in tiers is read beside the step that computes the rest, or computed, whichever ends sooner.
"""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.kv.prefix import PrefixBlocks
from simulator.serving.replica.sequence import Sequence
from simulator.serving.state.stores import Hits, KvTiers
from simulator.serving.workload.request import Request


class LinkedBlocks(PrefixBlocks):
    """`PrefixBlocks` whose evicted units go to tiers on shared links."""

    moves = True
    # Units behind the prefix come from tiers instead.
    finds_own: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    __slots__ = ("_hits", "tiers")

    def __init__(self, total: int, block_tokens: int, span: int) -> None:
        super().__init__(total, block_tokens, span)
        self.tiers: KvTiers | None = None
        self._hits: tuple[Sequence | None, Hits] = (None, [])
        """The sequence matched last, and the units to read for it."""

    def evicted(self, unit: int) -> None:
        """See `PrefixBlocks.evicted`."""
        super().evicted(unit)
        if self.tiers is not None:
            self.tiers.put(unit)

    def cached(self, request: Request) -> int:
        """See `PagedBlocks.cached`; tiers count."""
        in_memory = super().cached(request)
        return in_memory + len(self._tiered(request, in_memory, request.prompt)) * self._unit

    def match(self, sequence: Sequence) -> int:
        """See `PagedBlocks.match`; counts tokens in tiers, without those that are computed again."""
        in_memory = super().match(sequence)
        hits = self._tiered(sequence.request, in_memory, sequence.target)
        if self.tiers is None or not self.tiers.sooner(hits, in_memory, sequence.target):
            hits = []
        self._hits = sequence, hits
        return in_memory + (self.tiers.read_tokens(hits) if self.tiers is not None else 0)

    def wait_seconds(self, sequence: Sequence, now: float) -> float:
        """See `PagedBlocks.wait_seconds`."""
        matched, hits = self._hits
        return 0.0 if self.tiers is None else self.tiers.wait(hits if matched is sequence else [], now)

    def _tiered(self, request: Request, in_memory: int, tokens: int) -> Hits:
        """Units in tiers behind ``in_memory`` tokens of device memory, up to the first unit in none."""
        hits: Hits = []
        if self.tiers is not None:
            for unit in self.units(request)[in_memory // self._unit : (tokens - 1) // self._unit]:
                store = self.tiers.find(unit)
                if store is None:
                    break
                hits.append((unit, store))
        return hits
