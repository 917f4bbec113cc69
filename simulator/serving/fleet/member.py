"""Replicas as members of a fleet."""

from __future__ import annotations

from dataclasses import dataclass

from simulator.serving.adapters import AdapterStore
from simulator.serving.replica.base import StepLoop
from simulator.serving.replica.meter import Meter
from simulator.serving.setting import PoolSetting
from simulator.serving.workload.request import Request


@dataclass
class Member:
    """A replica of the fleet."""

    index: int
    pool: PoolSetting
    replica: StepLoop
    meter: Meter
    rank: int = 0
    """Rank of its first device."""
    started_s: float = 0.0
    drained_s: float | None = None
    """Time at which it stopped taking requests, s."""
    last_s: float = 0.0
    """Time at which its last sequence ended, s."""
    up: bool = True
    """Whether the replica is up (has not failed)."""
    failures: int = 0
    adapters: AdapterStore | None = None
    """Adapters in its memory; None where requests have none."""

    def __post_init__(self) -> None:
        self.empty_adapters()
        self.ingest_s = self.pool.options.ingest_s + self.pool.costs.first_token_s
        """Seconds from a client's send to the engine's queue."""
        self.receive_interval = self.pool.options.receive_interval
        """Decode steps between two looks at the queue of new requests."""

    @property
    def ready_s(self) -> float:
        """Time from which its kernels are compiled, s."""
        return self.started_s + self.pool.options.compile_s

    def empty_adapters(self) -> None:
        """Forget all adapters, as a replica that has just started."""
        held = self.pool.adapters
        self.adapters = None if held is None else held.store()

    @property
    def load(self) -> int:
        """Sequences waiting and running."""
        return self.replica.load

    @property
    def queue(self) -> int:
        """Sequences waiting."""
        return self.replica.queue

    @property
    def decodes(self) -> bool:
        """Whether it runs outputs alone."""
        return self.pool.pool.role == "decode"

    def cached(self, request: Request) -> int:
        """Tokens of the request's prompt in its prefix cache."""
        return self.replica.cached(request)

    def holds(self, request: Request) -> bool:
        """Whether it holds the request's adapter; without adapters every replica does."""
        return self.adapters is None or self.adapters.holds(request.adapter)
