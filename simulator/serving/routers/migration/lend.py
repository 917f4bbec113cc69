"""Infinite-LLM: replicas with free KV blocks lend them to those that lack some; sequences stay."""

from __future__ import annotations

from collections.abc import Sequence as Many
from typing import ClassVar

from pydantic import Field

from simulator.serving.routers.migration.base import Loan, Migration, Move, MovingHost


class Lend(Migration):
    """Free blocks go from the freest replicas to those whose queue or batch lacks some, and back when unused.

    A request may be longer than one replica holds; it waits until its whole prompt finds blocks. A replica
    keeps ``reserve`` free blocks for each of its sequences before it lends.
    """

    name: ClassVar[str] = "lend"
    rule: ClassVar[str] = "free blocks of some replicas hold KV of others, whose attention runs there"
    source: ClassVar[str] = "Lin et al., Infinite-LLM (arXiv 2401.02669)"
    lends: ClassVar[bool] = True
    reserve: int = Field(default=4, ge=0, le=2**20, description="free blocks kept for each sequence")

    def moves(self, hosts: Many[MovingHost]) -> list[Move]:
        """See `Migration.moves`: sequences stay."""
        return []

    def loans(self, hosts: Many[MovingHost]) -> list[Loan]:
        """See `Migration.loans`."""
        room, lacks = {}, {}
        for host in hosts:
            free = host.unused - self.reserve * (host.load - host.queue)
            lacks[host.index] = max(host.head - free, -free, 0)
            # Where the head of the queue does not fit anyway, its replica lends what it has.
            room[host.index] = max(free if lacks[host.index] else free - host.head, 0)
        loans = self._returns(hosts, room, lacks)
        for host in sorted(hosts, key=lambda host: (lacks[host.index], host.index)):
            need = lacks[host.index]
            if not need or need > sum(room.values()) - room[host.index]:
                # Parts of two long requests would wait for each other: all that is lacking, or nothing.
                continue
            room[host.index] = 0
            for lender in sorted(room, key=lambda index: (-room[index], index)):
                blocks = min(need, room[lender])
                if blocks > 0:
                    loans.append(Loan(lender, host.index, blocks))
                    room[lender] -= blocks
                    need -= blocks
        return loans

    @staticmethod
    def _returns(hosts: Many[MovingHost], room: dict[int, int], lacks: dict[int, int]) -> list[Loan]:
        """Unused blocks go back to the replicas that lent some."""
        owed = {host.index: host.borrowed for host in hosts}
        loans = []
        for borrower in (index for index in owed if owed[index] > 0):
            for lender in (index for index in owed if owed[index] < 0):
                blocks = min(owed[borrower], room[borrower], -owed[lender])
                if blocks > 0 and not lacks[borrower]:
                    loans.append(Loan(borrower, lender, blocks))
                    for index, sign in ((borrower, -1), (lender, 1)):
                        owed[index] += sign * blocks
                        room[index] += sign * blocks
                    lacks[lender] = max(lacks[lender] - blocks, 0)
        return loans
