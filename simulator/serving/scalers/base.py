"""Interface of scalers: the number of replicas that a pool should have."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, NamedTuple

from pydantic import Field

from core.loading import Strict
from core.quantities import Duration
from simulator.serving.steps.step_times import Chunk

StepSeconds = Callable[[Sequence[Chunk], int, int], float]


class ReplicaLoad(NamedTuple):
    """What a server's own metrics say of one replica that is up."""

    kv: float
    """Share of its KV blocks in use."""
    waiting: int
    """Sequences in its queue."""


class PoolLoad(NamedTuple):
    """What a planner sees of a pool at a look."""

    role: str
    """Of its replicas: mixed, prefill or decode."""
    replicas: tuple[ReplicaLoad, ...]
    """Those that are up."""
    starting: int
    """Replicas that are not up yet."""
    since_added_s: float
    """Seconds since the last replica was added; infinite where none was."""

    @property
    def size(self) -> int:
        """Replicas that are up or starting."""
        return len(self.replicas) + self.starting


class EndedRequests(NamedTuple):
    """What a planner sees of the requests that ended since its last look, and of one replica's profile."""

    role: str
    """Of the pool: mixed, prefill or decode."""
    size: int
    """Replicas that are up or starting."""
    rate: float
    """Requests a second; 0 where none ended."""
    prompt: float
    output: float
    """Mean tokens of a request."""
    ttft_s: float
    tpot_s: float
    """Mean latencies."""
    slots: int
    """Maximum concurrent sequences of one replica."""
    step_s: StepSeconds
    """Seconds of a step by prompt chunks, decodes and their KV tokens, as `StepTimes.step`."""


class Scaler(Strict):
    """One policy. Its fields are its parameters (`scaler_options`).

    Attributes:
        name: name in deployments.
        rule: description for people.
        source: publication.
        watches: it looks at the share of requests that meet the targets (`within`).
        reads_replicas: it looks at the metrics of each replica (`by_load`).
        reads_requests: it looks at the requests that ended (`by_requests`).
    """

    name: ClassVar[str]
    rule: ClassVar[str]
    source: ClassVar[str]
    watches: ClassVar[bool] = False
    reads_replicas: ClassVar[bool] = False
    reads_requests: ClassVar[bool] = False

    interval: float = Field(10.0, ge=0.1, le=1e6, description="seconds between two looks at the pool")
    start: Duration = Field(
        60.0, description="seconds until a new replica takes requests: allocation, weights, warm-up"
    )

    @property
    def fewest(self) -> int:
        """Fewest replicas that a pool keeps."""
        return 1

    @abstractmethod
    def target_replicas(self, now: float, replicas: int, running: int, waiting: int, slots: int) -> int:
        """Replicas that the pool should have.

        Args:
            now: seconds since the start.
            replicas: replicas that are up or starting.
            running: sequences in the slots of replicas that are up.
            waiting: sequences in their queues.
            slots: maximum concurrent sequences of one replica.
        """

    def within(self, replicas: int, running: int, waiting: int, slots: int, met: float) -> int:
        """Replicas that the pool should have by the share of requests that met the targets.

        Args:
            replicas, running, waiting, slots: as in `target_replicas`.
            met: share since the last look.
        """
        return replicas

    def by_load(self, pool: PoolLoad) -> int:
        """Replicas that the pool should have by the metrics of each replica."""
        return pool.size

    def by_requests(self, seen: EndedRequests) -> int:
        """Replicas that the pool should have by the requests that ended."""
        return seen.size
