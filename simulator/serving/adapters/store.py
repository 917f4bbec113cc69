"""Adapters that a replica holds in device memory."""

from __future__ import annotations

from collections import Counter, OrderedDict

from simulator.serving.state.owners import Owners


class AdapterStore:
    """Adapters by their last use; the least recently used idle one makes room.

    Args:
        room: adapters that fit.
        load_s: seconds to copy one from the host.
    """

    def __init__(self, room: int, load_s: float) -> None:
        self.room, self.load_s = room, load_s
        self._held: OrderedDict[int, None] = OrderedDict()
        self._users: Counter[int] = Counter()
        self._owners: Owners | None = None
        self._bit = 0
        """Its own bit among the owners."""
        self._free_s = 0.0
        self.hits = self.misses = 0

    def list_adapters(self, owners: Owners) -> None:
        """Keep the owners of adapters up to date with those of this store from now on."""
        self._owners, self._bit = owners, owners.listed(self._held)

    def holds(self, adapter: int) -> bool:
        """Whether an adapter is in device memory, or on its way there."""
        return adapter in self._held

    def take(self, adapter: int, now: float) -> float:
        """Hold an adapter for one more sequence; returns the time at which it is loaded, s.

        Copies go over the host link one after the other, beside the steps. Where all adapters in memory are
        in use the new one is held beside them.
        """
        self._users[adapter] += 1
        if adapter in self._held:
            self._held.move_to_end(adapter)
            self.hits += 1
            return now
        self.misses += 1
        idle = (
            [unused for unused in self._held if not self._users[unused]]
            if len(self._held) >= self.room
            else []
        )
        for unused in idle[: len(self._held) - self.room + 1]:
            del self._held[unused]
            if self._owners is not None:
                self._owners.leave(unused, self._bit)
        self._held[adapter] = None
        if self._owners is not None:
            self._owners.enter(adapter, self._bit)
        self._free_s = max(self._free_s, now) + self.load_s
        return self._free_s

    def leave(self, adapter: int) -> None:
        """Let a sequence of an adapter go."""
        self._users[adapter] -= 1
