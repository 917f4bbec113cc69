"""Failures, restores and drains of replicas, as processes on the clock of a fleet.

A failure loses the KV and the queue of a replica. The router sends its requests again, as new requests, to
replicas that are up. The replica returns when it has started and loaded its weights.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import numpy as np

from hwmodels.cluster import Cluster
from simulator.serving.fleet.fleet import Fleet
from simulator.serving.fleet.member import Member
from simulator.serving.question.failures import Drain, Failures, Outage
from simulator.serving.setting import PoolSetting
from simulator.serving.starts import Loaded

if TYPE_CHECKING:
    from simulator.faults.exponential import Exponential


def restore_seconds(failures: Failures, cluster: Cluster, pool: PoolSetting, running: bool = True) -> float:
    """Seconds from a failure of a replica until it takes requests; ``running``: others of its pool run."""
    if failures.restore is not None:
        return failures.restore
    stages = pool.stages(running)
    if stages is not None:
        return sum(stages.values())
    replica = Loaded(cluster, pool.pool.devices, pool.costs.weight_bytes)
    return failures.start + replica.read_s(failures.weights)


def outages(fleet: Fleet) -> None:
    """Start the processes of listed failures, and of random ones of the members at the start."""
    failures, clock = fleet.setting.deployment.failures, fleet.clock
    if failures is None:
        return

    def listed(outage: Outage) -> Generator[Any, Any, Any]:
        yield clock.timeout(outage.time)
        if outage.replica < len(fleet.members):
            yield from fail(fleet.members[outage.replica])

    def random(member: Member, process: Exponential) -> Generator[Any, Any, Any]:
        from simulator.faults import Exposed

        draws = np.random.default_rng([fleet.setting.seed, 13, member.index])
        replica = Exposed(1, member.pool.pool.devices)
        while not fleet.ended:
            yield clock.timeout(process.gap(draws, replica))
            if not fleet.ended:
                yield from fail(member)

    def fail(member: Member) -> Generator[Any, Any, Any]:
        if not member.up:
            return
        fleet.lose(member, clock.now)
        yield clock.timeout(
            restore_seconds(failures, member.pool.cluster, member.pool, fleet.runs(member.pool))
        )
        fleet.restore(member, clock.now)

    for outage in failures.at:
        clock.process(listed(outage))
    if failures.process is not None:
        for member in fleet.members:
            clock.process(random(member, failures.process))


def drains(fleet: Fleet) -> None:
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

    for drain in fleet.setting.deployment.drains:
        clock.process(process(drain))
