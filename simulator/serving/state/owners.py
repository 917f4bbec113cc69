"""Which of many caches hold a unit: a bit for each cache, kept up to date by the caches."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


class Owners:
    """Caches by the units that they hold.

    Attributes:
        masks: of each unit, the bits of its caches.
    """

    def __init__(self) -> None:
        self.masks: dict[int, int] = {}
        self._caches = 0

    def listed(self, units: Iterable[int]) -> int:
        """Add a cache with the units that it holds; returns its bit, the first of the lowest value."""
        bit = 1 << self._caches
        self._caches += 1
        for unit in units:
            self.enter(unit, bit)
        return bit

    def enter(self, unit: int, bit: int) -> None:
        """Note that a cache holds a unit."""
        self.masks[unit] = self.masks.get(unit, 0) | bit

    def leave(self, unit: int, bit: int) -> None:
        """Note that a cache holds a unit no longer."""
        mask = self.masks[unit] & ~bit
        if mask:
            self.masks[unit] = mask
        else:
            del self.masks[unit]

    def numbers(self, mask: int) -> NDArray[np.int64]:
        """Numbers of the caches of a mask, ascending, in the order in which they were listed."""
        octets = np.frombuffer(mask.to_bytes((self._caches + 7) // 8, "little"), np.uint8)
        return np.flatnonzero(np.unpackbits(octets, bitorder="little"))

    def leading(self, units: tuple[int, ...]) -> list[tuple[int, int]]:
        """Masks of the caches by the number of leading units that they hold, from 1 on, ascending."""
        levels: list[tuple[int, int]] = []
        masks, mask = self.masks, -1
        for count, unit in enumerate(units):
            holders = masks.get(unit, 0) & mask
            if count and holders != mask:
                levels.append((count, mask ^ holders))
            mask = holders
            if not mask:
                return levels
        if units:
            levels.append((len(units), mask))
        return levels
