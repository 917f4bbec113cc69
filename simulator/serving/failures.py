"""Failures, restores and drains of replicas, as processes on the clock of a fleet.

A failure loses the KV and the queue of a replica. The router sends its requests again, as new requests, to
replicas that are up. The replica returns when it has started and loaded its weights.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import Field

from hwmodels.cluster import Cluster
from hwmodels.loading import Strict
from hwmodels.quantities import Duration
from simulator.serving.places import Place, read_rate

if TYPE_CHECKING:
    from simulator.serving.fleet import Fleet, Member
    from simulator.serving.setting import PoolSetting


class Outage(Strict):
    """One failure of one replica."""

    time: Duration = Field(description="seconds from the start")
    replica: int = Field(ge=0, le=2**16, description="number of the replica, from 0 over all pools")


class Drain(Strict):
    """A drain: a replica takes no new requests for some time, and finishes its sequences."""

    time: Duration = Field(description="seconds from the start")
    replica: int = Field(ge=0, le=2**16, description="number of the replica, from 0 over all pools")
    until: Duration | None = Field(None, description="when it takes requests again; default: never")


class Failures(Strict):
    """Times of failures, and their durations."""

    mtbf: float | None = Field(
        None,
        ge=60,
        le=1e12,
        description="mean seconds between failures of one device; a replica fails with any",
    )
    at: list[Outage] = Field(default_factory=list, description="failures at given times (`time`, `replica`)")
    restore: Duration | None = Field(
        None, description="seconds until a failed replica is back; default: `start` and loading its weights"
    )
    start: Duration = Field(30.0, description="seconds to find devices, start the engine and warm it up")
    weights: Place = Field("nvme", description="where weights are loaded from: host, nvme or remote")
    retries: int = Field(3, ge=0, le=1000, description="times that a lost request is sent again at most")
    retry_after: Duration = Field(1.0, description="seconds until the router sends a lost request again")


def restore_seconds(failures: Failures, cluster: Cluster, pool: PoolSetting) -> float:
    """Seconds from a failure of a replica until it takes requests."""
    if failures.restore is not None:
        return failures.restore
    devices = pool.pool.devices
    return failures.start + devices * pool.costs.weight_bytes / read_rate(cluster, devices, failures.weights)


def outages(fleet: Fleet, failures: Failures) -> None:
    """Start the processes of listed failures, and of random ones of the members at the start."""
    clock = fleet.clock

    def listed(outage: Outage) -> Generator[Any, Any, Any]:
        yield clock.timeout(outage.time)
        if outage.replica < len(fleet.members):
            yield from fail(fleet.members[outage.replica])

    def random(member: Member, mean: float) -> Generator[Any, Any, Any]:
        draws = np.random.default_rng([fleet.setting.seed, 13, member.index])
        while not fleet.ended:
            yield clock.timeout(float(draws.exponential(mean)))
            if not fleet.ended:
                yield from fail(member)

    def fail(member: Member) -> Generator[Any, Any, Any]:
        if not member.up:
            return
        fleet.lose(member, clock.now)
        yield clock.timeout(restore_seconds(failures, fleet.setting.cluster, member.pool))
        fleet.restore(member, clock.now)

    for outage in failures.at:
        clock.process(listed(outage))
    if failures.mtbf is not None:
        for member in fleet.members:
            clock.process(random(member, failures.mtbf / member.pool.pool.devices))


def drains(fleet: Fleet, listed: list[Drain]) -> None:
    """Start the processes of drains."""
    clock = fleet.clock

    def process(drain: Drain) -> Generator[Any, Any, Any]:
        yield clock.timeout(drain.time)
        if drain.replica >= len(fleet.members):
            return
        member = fleet.members[drain.replica]
        fleet.close(member)
        if drain.until is not None:
            yield clock.timeout(max(drain.until - drain.time, 0.0))
            if member.up:
                fleet.open(member, clock.now)

    for drain in listed:
        clock.process(process(drain))
