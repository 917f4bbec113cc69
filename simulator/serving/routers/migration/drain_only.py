"""Migration away from replicas that are drained."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import ClassVar

from simulator.serving.replica.sequence import Sequence
from simulator.serving.routers.migration.base import Migration, Move, MovingHost


def drained_moves(hosts: Many[MovingHost]) -> list[Move]:
    """The shortest sequence of each drained replica, to the open replica with most free blocks."""
    takers = [host for host in hosts if host.open]
    moves = []
    for host in hosts:
        if host.open or not takers:
            continue
        sequence = shortest(host)
        target = max(takers, key=lambda taker: (taker.free, -taker.index))
        if sequence is not None and target.free >= host.blocks(sequence):
            moves.append(Move(sequence, host.index, target.index))
            takers.remove(target)
    return moves


def shortest(host: MovingHost) -> Sequence | None:
    """The sequence of the least urgent priority with the fewest blocks; None where none can move."""
    movable = host.movable()
    key = [(-sequence.priority, host.blocks(sequence), sequence.request.serial) for sequence in movable]
    return movable[key.index(min(key))] if movable else None


class DrainOnly(Migration):
    """Sequences leave replicas that take no requests, so that these are free sooner."""

    name: ClassVar[str] = "drain"
    rule: ClassVar[str] = "sequences leave drained replicas, the shortest first"
    source: ClassVar[str] = "Sun et al., Llumnix, arXiv 2406.03243 (draining before scaling down)"

    def moves(self, hosts: Many[MovingHost]) -> list[Move]:
        """See `Migration.moves`."""
        return drained_moves(hosts)
