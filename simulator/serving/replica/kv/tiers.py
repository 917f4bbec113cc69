"""Tiers below device memory for KV of prefixes: host memory, local SSDs, a pool that all replicas share.

A unit that device memory evicts moves to the first tier; a full tier moves its least recently used unit to
the next. Writes run in the background. A prefix in tiers is read while the step that admits its prompt
computes the rest, layer by layer, so that step takes the longer of the two times. A share of the tokens
that are read may be computed again (Yao et al., CacheBlend, arXiv 2405.16444).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence as Many
from typing import ClassVar

from simulator.serving.replica.kv.prefix import PrefixBlocks
from simulator.serving.replica.sequence import Sequence
from simulator.serving.workload.request import Request


class TierStore:
    """Content of a tier: units in order of their last use.

    Args:
        units: capacity, units.
        token_s: seconds to read the KV of a token.
    """

    def __init__(self, units: int, token_s: float) -> None:
        self.capacity, self.token_s = units, token_s
        self.units: OrderedDict[int, None] = OrderedDict()

    def add(self, unit: int) -> int | None:
        """Store a unit; returns the evicted unit, if any."""
        self.units[unit] = None
        self.units.move_to_end(unit)
        return self.units.popitem(last=False)[0] if len(self.units) > self.capacity else None


class TieredBlocks(PrefixBlocks):
    """`PrefixBlocks` whose evicted units go to tiers.

    Args:
        total, block_tokens, span: as in `PrefixBlocks`.
        recompute: share of the tokens read from tiers that is computed again.
    """

    # Units behind the prefix come from tiers instead.
    finds_own: ClassVar[bool] = False
    alone: ClassVar[bool] = False
    __slots__ = ("_recompute", "_stores")

    def __init__(self, total: int, block_tokens: int, span: int, recompute: float) -> None:
        super().__init__(total, block_tokens, span)
        self._recompute = recompute
        self._stores: Many[TierStore] = ()

    def use(self, stores: Many[TierStore]) -> None:
        """Set the tiers, the fastest first; none are read where all tokens are computed again."""
        self._stores = stores if self._recompute < 1.0 else ()

    def evicted(self, unit: int) -> None:
        """See `PrefixBlocks.evicted`."""
        super().evicted(unit)
        leaving: int | None = unit
        for store in self._stores:
            if leaving is None:
                return
            leaving = store.add(leaving)

    def cached(self, request: Request) -> int:
        """See `PagedBlocks.cached`; tiers count."""
        in_memory = super().cached(request)
        return in_memory + sum(
            self._unit for _ in self._tiered(self.units(request), in_memory, request.prompt)
        )

    def match(self, sequence: Sequence) -> int:
        """See `PagedBlocks.match`; counts tokens in tiers, without those that are recomputed."""
        in_memory = super().match(sequence)
        read = len(self._tiered(self.units(sequence.request), in_memory, sequence.target)) * self._unit
        return in_memory + int((1.0 - self._recompute) * read)

    def read_seconds(self, sequence: Sequence) -> float:
        """See `PagedBlocks.read_seconds`."""
        units = self.units(sequence.request)
        in_memory = len(sequence.cached_units) * self._unit
        stores, seconds = self._tiered(units, in_memory, sequence.target), 0.0
        for unit, store in zip(units[in_memory // self._unit :], stores, strict=False):
            store.units.move_to_end(unit)
            seconds += self._unit * store.token_s
        return seconds

    def _tiered(self, units: tuple[int, ...], in_memory: int, tokens: int) -> list[TierStore]:
        """Tiers of the units behind ``in_memory`` tokens of device memory, up to the first unit in none."""
        stores: list[TierStore] = []
        for unit in units[in_memory // self._unit : (tokens - 1) // self._unit]:
            store = next((store for store in self._stores if unit in store.units), None)
            if store is None:
                break
            stores.append(store)
        return stores
