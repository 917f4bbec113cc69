"""Scaling of pools: a process on the clock that asks the scaler and starts or drains replicas."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from simulator.serving.fleet.fleet import Fleet
from simulator.serving.fleet.member import Member


def scale(fleet: Fleet) -> Generator[Any, Any, Any]:
    """Check the pool periodically until all requests have ended.

    A new replica takes requests after its start; a drained one takes none, and finishes its sequences.
    """
    scaler, clock = fleet.setting.scaler, fleet.clock
    pool = fleet.setting.pools[0]
    starting = 0

    def begin() -> Generator[Any, Any, Any]:
        nonlocal starting
        starting += 1
        member = fleet.add(pool, clock.now)
        yield clock.timeout(scaler.start)
        starting -= 1
        fleet.open(member, clock.now)

    while not fleet.ended:
        yield clock.timeout(scaler.interval)
        for member in fleet.members:
            member.replica.advance(clock.now)
        up = fleet.entry
        running = sum(member.replica.running for member in up)
        waiting = sum(member.queue for member in up)
        wanted = scaler.wanted(clock.now, len(up) + starting, running, waiting, pool.options.max_sequences)
        for _ in range(wanted - len(up) - starting):
            clock.process(begin())
        while len(up) > max(wanted, 1):
            drained = min(up, key=lambda member: (member.load, -member.index))
            fleet.close(drained)
            drained.drained_s = clock.now


def seconds_up(member: Member, end: float) -> float:
    """Seconds for which a replica held its devices: until the end of the run or of its drain."""
    until = end if member.drained_s is None else max(member.drained_s, member.last_s)
    return max(min(until, end) - member.started_s, 0.0)
