"""Interface of power policies: the clocks of a row of servers that share a power budget."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from pydantic import Field

from core.loading import Strict
from core.quantities import Duration, Few, Positive

Clocks = tuple[float | None, float | None]
"""MHz of replicas of low and of high priority; None: the full clock."""


class PowerPolicy(Strict):
    """One policy. Its fields are its parameters (`power_policy_options`). A server is a replica.

    Attributes:
        name: name in deployments.
        rule: description for people.
        source: publication.
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    source: ClassVar[str]

    servers: Few = Field(1, description="servers that the row's power was provisioned for")
    server_w: Positive | None = Field(
        None,
        description="power provisioned for a server; default: limits of its devices and its hosts' power",
    )
    low_share: float = Field(0.5, ge=0, le=1, description="share of the replicas with low priority, the last")
    telemetry: float = Field(
        2.0, ge=0.1, le=1e4, description="seconds between two readings of the row's power"
    )
    actuation: Duration = Field(40.0, description="seconds until a new clock takes effect (out of band)")
    brake_after: Duration = Field(5.0, description="seconds until a power brake takes effect")
    brake_mhz: Positive = Field(435.0, description="clock of all devices under a power brake")

    @abstractmethod
    def level(self, before: int, used: float) -> int:
        """Index into ``clocks`` that the row should have.

        Args:
            before: index of the last request.
            used: power of the row as a share of its budget.
        """

    @property
    @abstractmethod
    def clocks(self) -> tuple[Clocks, ...]:
        """Clocks by level, the first without a cap."""
