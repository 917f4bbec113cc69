"""Llumnix: sequences move from replicas with little freeness to those with much."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import ClassVar

from pydantic import Field

from simulator.serving.routers.migration.base import Migration, Move, MovingHost
from simulator.serving.routers.migration.drain_only import drained_moves, shortest


class Llumnix(Migration):
    """Freeness is free blocks less the demand of the queue, per sequence.

    Replicas below ``threshold`` give their shortest sequence, of the least urgent priority, to replicas above
    it, the least free to the freest, where the taker stays freer than the giver was. This balances, and joins
    free blocks for the queue's head (de-fragmentation). ``headroom`` are blocks that a replica with a
    sequence of priority 0 counts as used, so that others leave it. Drained replicas give all their sequences.
    """

    name: ClassVar[str] = "llumnix"
    rule: ClassVar[str] = (
        "a sequence from replicas with few free blocks to those with many; drained ones give all"
    )
    source: ClassVar[str] = "Sun et al., Llumnix, arXiv 2406.03243; defaults of AlibabaPAI/llumnix"
    threshold: float = Field(
        default=3.0, ge=-1e6, le=1e6, description="free blocks per sequence below which a replica gives"
    )
    headroom: int = Field(
        default=0, ge=0, le=2**31, description="blocks that the presence of a sequence of priority 0 uses up"
    )

    def moves(self, hosts: Many[MovingHost]) -> list[Move]:
        """See `Migration.moves`."""
        moves = drained_moves(hosts)
        busy = {index for move in moves for index in (move.source, move.target)}
        rest = [host for host in hosts if host.open and host.index not in busy]
        free = {host.index: self._free(host) for host in rest}
        freeness = {host.index: free[host.index] / max(host.load, 1) for host in rest}
        rest.sort(key=lambda host: (freeness[host.index], host.index))
        giving = [host for host in rest if freeness[host.index] < self.threshold and host.load > 1]
        taking = [
            host for host in reversed(rest) if freeness[host.index] >= self.threshold and not host.queue
        ]
        for giver, taker in zip(giving, taking, strict=False):
            sequence = shortest(giver)
            if sequence is None:
                continue
            after = (free[taker.index] - giver.blocks(sequence)) / (taker.load + 1)
            if after > max(freeness[giver.index], 0.0):
                moves.append(Move(sequence, giver.index, taker.index))
        return moves

    def _free(self, host: MovingHost) -> int:
        urgent = self.headroom > 0 and any(sequence.priority == 0 for sequence in host.movable())
        return host.free - (self.headroom if urgent else 0)
