"""A cache of prompt prefixes over paged blocks: by hash, least recently used evicted first."""

from __future__ import annotations

from collections import OrderedDict
from math import gcd
from typing import ClassVar

from simulator.serving.replica.kv.paged import PagedBlocks
from simulator.serving.replica.sequence import Sequence
from simulator.serving.state.owners import Owners
from simulator.serving.workload.request import Request


class PrefixBlocks(PagedBlocks):
    """Blocks with a prefix cache: prefix blocks stay cached after their sequences end, until evicted.

    Prefixes come as ids, each for ``span`` tokens and all before them (a hash chain). The cache manages
    *units*: the fewest spans that fill whole blocks. A unit counts the sequences that use it; an unused unit
    is free, in order of its last use. Tails are evicted before heads (vLLM, SGLang).
    """

    shares = True
    finds_own: ClassVar[bool] = True
    """Whether a preempted sequence finds its own full blocks behind its prefix."""
    __slots__ = ("_bit", "_idle", "_owners", "_step", "_unit", "_unit_blocks", "_users")

    def __init__(self, total: int, block_tokens: int, span: int) -> None:
        super().__init__(total, block_tokens, keeps_freed=False)
        self._step = block_tokens // gcd(block_tokens, span)
        self._unit = self._step * span
        self._unit_blocks = self._unit // block_tokens
        self._users: dict[int, int] = {}
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._owners: Owners | None = None
        self._bit = 0
        """Its own bit among the owners."""

    @property
    def span_tokens(self) -> int:
        """Tokens of a prefix id."""
        return self._unit // self._step

    @property
    def unit_tokens(self) -> int:
        """Tokens of a unit."""
        return self._unit

    def list_units(self, owners: Owners) -> None:
        """Keep the owners of units up to date with the units of this cache from now on."""
        self._owners, self._bit = owners, owners.listed(self._users)

    @property
    def shared(self) -> int:
        """See `PagedBlocks.shared`."""
        return (len(self._users) - len(self._idle)) * self._unit_blocks

    def in_units(self, sequence: Sequence) -> int:
        """See `PagedBlocks.in_units`."""
        return len(sequence.cached_units) * self._unit_blocks

    def units(self, request: Request) -> tuple[int, ...]:
        """Ids of the request's units."""
        return request.prefix[self._step - 1 :: self._step]

    def cached(self, request: Request) -> int:
        """Tokens of the request's prompt that the cache holds."""
        return self._matched(self.units(request), request.prompt)

    def in_memory(self, request: Request) -> int:
        """See `PagedBlocks.in_memory`."""
        return self._matched(self.units(request), request.prompt)

    def match(self, sequence: Sequence) -> int:
        """See `PagedBlocks.match`."""
        cached = self._matched(self.units(sequence.request), sequence.target)
        return max(cached, super().match(sequence))

    def hold(self, sequence: Sequence, tokens: int, cached: int = 0) -> bool:
        """See `PagedBlocks.hold`; ``cached`` tokens of a sequence to admit are in the cache."""
        cached_units = sequence.cached_units
        shared: tuple[int, ...] = ()
        if cached and not cached_units:
            units = self.units(sequence.request)
            shared = units[: self._matched(units, sequence.target) // self._unit]
        need = (
            -(-tokens // self.block_tokens)
            - sequence.blocks
            - (len(cached_units) + len(shared)) * self._unit_blocks
        )
        woken = sum(self._users[unit] == 0 for unit in shared) * self._unit_blocks
        if max(need, 0) + woken > self.free:
            return False
        for unit in shared:
            self._use(unit)
        cached_units.extend(shared)
        if need > 0:
            self.grow(need)
            sequence.blocks += need
        return True

    def grow(self, blocks: int) -> None:
        """See `PagedBlocks.grow`; evicts idle units when no other block is free."""
        self.free -= blocks
        self.taken += blocks
        idle, size = self._idle, self._unit_blocks
        while len(idle) * size > self.free:
            unit, _ = idle.popitem(last=False)
            self.evicted(unit)

    def evicted(self, unit: int) -> None:
        """Forget a unit."""
        del self._users[unit]
        if self._owners is not None:
            self._owners.leave(unit, self._bit)

    def computed(self, sequence: Sequence) -> None:
        """Enter the units that the sequence's KV has reached."""
        self._enter(sequence, sequence.computed)

    def release(self, sequence: Sequence, tokens: int, preempted: bool = False) -> None:
        """See `PagedBlocks.release`; the units stay, idle."""
        self._enter(sequence, tokens)
        if preempted and self.finds_own:
            # Own blocks stay cached too, behind all that were free before (vLLM).
            sequence.ghost = self.taken, self.free, tokens // self.block_tokens
        private = max(-(-tokens // self.block_tokens) - len(sequence.cached_units) * self._unit_blocks, 0)
        for unit in reversed(sequence.cached_units):
            self._users[unit] -= 1
            if self._users[unit] == 0:
                self._idle[unit] = None
                self.free += self._unit_blocks
        self.free += private
        sequence.cached_units = []
        sequence.blocks = 0

    def _matched(self, units: tuple[int, ...], tokens: int) -> int:
        users, full_units = self._users, (tokens - 1) // self._unit
        count = 0
        for unit in units[:full_units]:
            if unit not in users:
                break
            count += 1
        return count * self._unit

    def _use(self, unit: int) -> None:
        if self._users[unit] == 0:
            del self._idle[unit]
            self.free -= self._unit_blocks
        self._users[unit] += 1

    def _enter(self, sequence: Sequence, tokens: int) -> None:
        """Turn the sequence's own blocks into shared units; merge those that another sequence entered."""
        units, cached_units = self.units(sequence.request), sequence.cached_units
        while len(cached_units) < min(tokens // self._unit, len(units)):
            unit = units[len(cached_units)]
            if unit in self._users:
                self._use(unit)
                self.free += self._unit_blocks
            else:
                self._users[unit] = 1
                if self._owners is not None:
                    self._owners.enter(unit, self._bit)
            cached_units.append(unit)
            sequence.blocks -= self._unit_blocks
