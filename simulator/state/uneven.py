"""Sharded state in unequal parts: a device with more memory holds more of it (Cephalo, arXiv:2411.01075)."""

from __future__ import annotations

from dataclasses import dataclass

UNEVEN_COLLECTIVE = 1.25
"""Most that gathers and reductions of unequal shards take over those of equal ones (Cephalo, abstract and
public summary: "about 25 %"). Padded to the largest shard they take its size over the mean."""


@dataclass(frozen=True)
class StateShare:
    """What a device holds of the state that its ranks shard."""

    device: float = 1.0
    """Bytes over those of an equal shard."""
    largest: float = 1.0
    """The same of the device that holds most."""

    @property
    def collective(self) -> float:
        """Bytes on the wire of a gather or a reduction over those of equal shards."""
        return min(self.largest, UNEVEN_COLLECTIVE)


EVEN = StateShare()
