"""A cache of prompt prefixes over paged blocks: by hash, least recently used evicted first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import takewhile
from math import gcd
from typing import ClassVar

from simulator.serving.replica.kv.paged import PagedBlocks
from simulator.serving.replica.sequence import Sequence
from simulator.serving.state.owners import Owners
from simulator.serving.workload.request import Request

MOST_PLACES = 2
"""Places of the line for each unused unit, at most."""


class PrefixBlocks(PagedBlocks):
    """Blocks with a prefix cache: prefix blocks stay cached after their sequences end, until evicted.

    Prefixes come as ids, each for ``span`` tokens and all before them (a hash chain). The cache manages
    *units*: the fewest spans that fill whole blocks. A unit counts the sequences that use it; an unused unit
    is free, in order of its last use. Tails are evicted before heads (vLLM, SGLang).

    Units come and go by the hundred with every prompt. A unit that is used again therefore stays in the line
    of unused ones, where its place is out of date; an ordered dictionary takes three times as long.
    """

    shares = True
    finds_own: ClassVar[bool] = True
    """Whether a preempted sequence finds its own full blocks behind its prefix."""
    __slots__ = ("_bit", "_idle", "_line", "_owners", "_place", "_step", "_unit", "_unit_blocks", "_users")

    def __init__(self, total: int, block_tokens: int, span: int) -> None:
        super().__init__(total, block_tokens, keeps_freed=False)
        self._step = block_tokens // gcd(block_tokens, span)
        self._unit = self._step * span
        self._unit_blocks = self._unit // block_tokens
        self._users: dict[int, int] = {}
        """Sequences that use a unit; of an unused one, its place in the line, counted down from 0."""
        self._line: deque[int] = deque()
        """Units in order of their last release, with places that are out of date."""
        self._place = 0
        """Place of the first unit of the line."""
        self._idle = 0
        """Unused units."""
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
        return (len(self._users) - self._idle) * self._unit_blocks

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
        cached_units, size = sequence.cached_units, self._unit_blocks
        shared: tuple[int, ...] = ()
        if cached and not cached_units:
            units = self.units(sequence.request)
            shared = units[: self._matched(units, sequence.target) // self._unit]
        need = -(-tokens // self.block_tokens) - sequence.blocks - (len(cached_units) + len(shared)) * size
        room = self.free - max(need, 0)
        # Where even all of them were idle there is room: no need to look.
        if room < len(shared) * size and room < size * sum(self._users[unit] <= 0 for unit in shared):
            return False
        if shared:
            self._use(shared)
            cached_units.extend(shared)
        if need > 0:
            self.grow(need)
            sequence.blocks += need
        return True

    def grow(self, blocks: int) -> None:
        """See `PagedBlocks.grow`; evicts idle units when no other block is free."""
        self.free -= blocks
        self.taken += blocks
        while self._idle * self._unit_blocks > self.free:
            unit, place = self._line.popleft(), self._place
            self._place -= 1
            if self._users.get(unit) == place:
                self._idle -= 1
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
        cached_units, users, line = sequence.cached_units, self._users, self._line
        private = max(-(-tokens // self.block_tokens) - len(cached_units) * self._unit_blocks, 0)
        first = place = self._place - len(line)
        for unit in reversed(cached_units):
            left = users[unit] - 1
            if left:
                users[unit] = left
            else:
                users[unit] = place
                place -= 1
                line.append(unit)
        self._idle += first - place
        self.free += (first - place) * self._unit_blocks + private
        if len(line) > MOST_PLACES * (self._idle + 1000):
            self._close_up()
        sequence.cached_units = []
        sequence.blocks = 0

    def _matched(self, units: tuple[int, ...], tokens: int) -> int:
        full_units = units[: (tokens - 1) // self._unit]
        leading = takewhile(self._users.__contains__, full_units)
        return len(list(leading)) * self._unit

    def _use(self, units: Iterable[int]) -> None:
        """Count one more sequence that uses units of the cache."""
        users, woken = self._users, 0
        for unit in units:
            count = users[unit]
            if count > 0:
                users[unit] = count + 1
            else:
                users[unit] = 1
                woken += 1
        self._idle -= woken
        self.free -= woken * self._unit_blocks

    def _close_up(self) -> None:
        """Leave places that are out of date out of the line."""
        users, first = self._users, self._place
        places = zip(self._line, range(first, first - len(self._line), -1), strict=True)
        line = deque(unit for unit, place in places if users.get(unit) == place)
        users.update(zip(line, range(first, first - len(line), -1), strict=True))
        self._line = line

    def _enter(self, sequence: Sequence, tokens: int) -> None:
        """Turn the sequence's own blocks into shared units; merge those that another sequence entered."""
        cached_units, users, size = sequence.cached_units, self._users, self._unit_blocks
        reached = tokens // self._unit
        if reached <= len(cached_units):
            return
        entered = self.units(sequence.request)[len(cached_units) : reached]
        for unit in entered:
            if unit in users:
                self._use((unit,))
                self.free += size
            else:
                users[unit] = 1
                if self._owners is not None:
                    self._owners.enter(unit, self._bit)
        cached_units.extend(entered)
        sequence.blocks -= len(entered) * size
