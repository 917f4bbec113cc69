"""Stores of state below device memory: what they hold, and what reading and writing it costs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from simulator.serving.state.links import Crossed, SharedLinks

COPY_GAP_S = 2e-6
"""Seconds between two copies of a copy engine (derived: copies of 32 KB over the host link of an H100 are 4
to 5 times slower than of 2 MB, vLLM blog of 2026-01-08 on the offloading connector)."""


def copied_bytes(bytes_: float, block_bytes: float, rate: float) -> float:
    """Bytes that occupy a link as long as copies of blocks do: each adds a gap.

    Args:
        bytes_: payload, B.
        block_bytes: of one copy, B; 0: one copy.
        rate: of the link, B/s.
    """
    copies = max(bytes_ / block_bytes, 1.0) if block_bytes else 1.0
    return bytes_ + copies * COPY_GAP_S * rate


class PlacedStore:
    """One store: units in order of their last use.

    Args:
        place: for reports.
        units: capacity, units.
        unit_bytes: size of a unit, B.
        unit_tokens: tokens of a unit.
        recompute: share of the tokens read that is computed again.
        read, write: lanes that a read and a write cross.
        block_bytes: size of one copy, B.
        shared: content of a pool that several replicas read, each over its own links.
    """

    def __init__(
        self,
        place: str,
        units: int,
        unit_bytes: float,
        unit_tokens: int,
        recompute: float,
        read: Crossed,
        write: Crossed,
        block_bytes: float = 0.0,
        shared: OrderedDict[int, None] | None = None,
    ) -> None:
        self.place, self.capacity, self.unit_tokens, self.recompute = place, units, unit_tokens, recompute
        self.read, self.write = read, write
        self.units: OrderedDict[int, None] = OrderedDict() if shared is None else shared
        rates = [min(lane.rate for lane in route) for route in (read, write)]
        self.read_bytes, self.write_bytes = (copied_bytes(unit_bytes, block_bytes, rate) for rate in rates)
        self.read_s = self.read_bytes / rates[0]
        """Seconds to read a unit over links without other users."""
        self.tokens_read = 0

    def add(self, unit: int) -> int | None:
        """Store a unit; returns the evicted unit, if any."""
        self.units[unit] = None
        self.units.move_to_end(unit)
        return self.units.popitem(last=False)[0] if len(self.units) > self.capacity else None


Hits = list[tuple[int, PlacedStore]]
"""Units and the store that each is read from."""


class KvTiers:
    """Stores in order, the fastest first; a full one hands its least recently used unit to the next.

    Args:
        stores: the tiers.
        links: carries reads and writes.
        prefill_s: seconds to compute tokens (first argument) behind others (second argument).
        waits: whether steps wait for writes, because their blocks are free only then.
    """

    def __init__(
        self,
        stores: Sequence[PlacedStore],
        links: SharedLinks,
        prefill_s: Callable[[int, int], float],
        waits: bool = True,
    ) -> None:
        # None are read or written where all tokens are computed again.
        self.stores = [store for store in stores if store.recompute < 1.0]
        self._links, self._prefill_s, self._waits = links, prefill_s, waits
        self._pending: dict[Crossed, float] = {}
        self._ends_s = 0.0
        """When the last read or write that a step waits for ends, s."""

    def put(self, unit: int) -> None:
        """Store a unit in the first tier; its write begins with the next `wait`."""
        leaving: int | None = unit
        for store in self.stores:
            if leaving is None:
                return
            self._pending[store.write] = self._pending.get(store.write, 0.0) + store.write_bytes
            leaving = store.add(leaving)

    def find(self, unit: int) -> PlacedStore | None:
        """The first tier that holds a unit."""
        return next((store for store in self.stores if unit in store.units), None)

    def read_tokens(self, hits: Hits) -> int:
        """Tokens of units that need no computing."""
        return sum(int((1.0 - store.recompute) * store.unit_tokens) for _, store in hits)

    def sooner(self, hits: Hits, before: int, target: int) -> bool:
        """Whether reading units, and computing the rest beside it, ends before computing all.

        Args:
            hits: units in tiers.
            before: tokens in device memory.
            target: tokens of the prompt.
        """
        if not hits:
            return False
        routes: dict[Crossed, float] = {}
        for _, store in hits:
            routes[store.read] = routes.get(store.read, 0.0) + store.read_s
        read = before + self.read_tokens(hits)
        computing = self._prefill_s(target - read, read)
        return max(max(routes.values()), computing) < self._prefill_s(target - before, before)

    def wait(self, hits: Hits, now: float) -> float:
        """Begin reads of units and pending writes; returns the seconds that they add to the step's wait."""
        bytes_: dict[Crossed, float] = {}
        for unit, store in hits:
            if unit in store.units:
                store.units.move_to_end(unit)
            store.tokens_read += store.unit_tokens
            bytes_[store.read] = bytes_.get(store.read, 0.0) + store.read_bytes
        begun, self._pending = self._pending, {}
        end = now
        for route, size in bytes_.items():
            end = max(end, self._links.send(now, size, route)[1])
        for route, size in begun.items():
            written = self._links.send(now, size, route)[1]
            end = max(end, written) if self._waits else end
        added = max(end - max(now, self._ends_s), 0.0)
        self._ends_s = max(self._ends_s, end)
        return added

    def tokens_read(self) -> Iterable[tuple[str, int]]:
        """Tokens read by place."""
        return ((store.place, store.tokens_read) for store in self.stores)
