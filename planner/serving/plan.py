"""A serving deployment that a search found, with its predicted figures."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from planner.serving.shapes import ReplicaShape

SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True, eq=False)
class ReplicaGroup:
    """Replicas of one shape in one role."""

    shape: ReplicaShape
    role: str
    replicas: int
    budget: int
    sequences: int

    @property
    def devices(self) -> int:
        """Devices of all replicas."""
        return self.shape.devices * self.replicas

    def describe(self) -> str:
        """Count and shape, e.g. ``4 x TP4 fp8``."""
        role = "" if self.role == "mixed" else f"{self.role} "
        return f"{role}{self.replicas} x {self.shape.describe()}"


@dataclass(frozen=True, eq=False, repr=False)
class ServingPlan:
    """A deployment with its predicted figures.

    Attributes:
        groups: one mixed group, or a prefill and a decode group.
        goodput: largest rate within the targets, requests a second; 0 where they cannot be met.
        load: rate of the figures below, requests a second: the requested rate, else ``goodput``.
        ttft_s: quantile of the targets' share; ``tpot_s``, ``e2e_s``: means.
        output_tokens_s: output tokens per second of all replicas.
        watts: power of all devices, W.
        usd_per_hour: list price of the devices in use.
        meets: whether the targets hold at ``load``.
        full_s: seconds of a request at ``goodput``; infinite where nothing was scored at that rate.
    """

    groups: tuple[ReplicaGroup, ...]
    goodput: float
    load: float
    ttft_s: float
    tpot_s: float
    e2e_s: float
    output_tokens_s: float
    watts: float
    usd_per_hour: float
    meets: bool
    full_s: float = inf

    @property
    def devices(self) -> int:
        """Devices in use."""
        return sum(group.devices for group in self.groups)

    @property
    def usd_per_million(self) -> float:
        """Dollars per million output tokens at the load."""
        return self.usd_per_hour / SECONDS_AN_HOUR / self.output_tokens_s * 1e6

    @property
    def joules_per_token(self) -> float:
        """Device energy of one output token at the load."""
        return self.watts / self.output_tokens_s

    def figure(self, objective: str) -> float:
        """The figure of an objective."""
        return {
            "goodput": self.goodput,
            "cost": self.usd_per_million,
            "energy": self.joules_per_token,
            "latency": self.e2e_s,
        }[objective]

    def __repr__(self) -> str:
        """The groups and the largest rate."""
        return f"ServingPlan({self.describe()}: {self.goodput:.3g} requests/s)"

    def describe(self) -> str:
        """The groups in a line."""
        return " + ".join(group.describe() for group in self.groups)
