"""The second decision of routers: which running sequence moves to which replica."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence as Many
from typing import ClassVar, Literal, NamedTuple, Protocol

from pydantic import Field

from core.loading import Strict
from simulator.serving.replica.sequence import Sequence


class MovingHost(Protocol):
    """A replica as a migration policy sees it."""

    index: int
    open: bool
    """Whether it takes requests; a replica that is drained does not."""
    free: int
    """Free KV blocks, less the demand of its queue."""
    load: int
    """Sequences waiting and running."""
    queue: int
    """Sequences waiting."""

    unused: int
    """Free KV blocks."""
    head: int
    """Blocks that the head of its queue needs; 0 without a queue."""
    borrowed: int
    """Blocks of other replicas that it uses; negative: blocks that it lends."""

    def blocks(self, sequence: Sequence) -> int:
        """KV blocks of a sequence."""
        ...

    def movable(self) -> Many[Sequence]:
        """Sequences that decode and are not on their way already."""
        ...


class Move(NamedTuple):
    """A sequence that leaves a replica for another."""

    sequence: Sequence
    source: int
    target: int


class Loan(NamedTuple):
    """Free blocks of a replica that another may use."""

    source: int
    target: int
    blocks: int


class Migration(Strict):
    """One policy. Its fields are its parameters (`router.migrate`).

    Attributes:
        name: name in deployments.
        rule: description for people.
        source: publication.
        lends: blocks are lent, so that a request may be longer than a replica holds.
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    source: ClassVar[str]
    lends: ClassVar[bool] = False

    interval: float = Field(
        default=0.1, ge=1e-3, le=3600, description="seconds between two looks at the replicas"
    )
    how: Literal["live", "recompute", "sooner"] = Field(
        default="live",
        description="live: copy the KV in stages while the sequence decodes; recompute: compute it again "
        "on the other replica; sooner: whichever stops the sequence for a shorter time",
    )
    stages: int = Field(default=3, ge=1, le=64, description="most stages of a live copy")
    last_blocks: int = Field(
        default=16, ge=0, le=2**20, description="blocks left to copy at which the sequence is stopped"
    )
    handshake: float = Field(
        default=0.02,
        ge=0,
        le=10,
        description="seconds in which the replicas agree on the last stage (stops of 20 to 30 ms at every "
        "length in arXiv 2406.03243)",
    )

    @abstractmethod
    def moves(self, hosts: Many[MovingHost]) -> list[Move]:
        """The moves to begin now.

        Args:
            hosts: replicas of one pool that take part in no move.
        """

    def loans(self, hosts: Many[MovingHost]) -> list[Loan]:
        """The loans of free blocks to make now; none by default.

        Args:
            hosts: replicas of one pool.
        """
        return []
