"""Scaling of pools: a process on the clock that asks the scaler and starts or drains replicas."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from simulator.serving.fleet.fleet import Fleet
from simulator.serving.fleet.member import Member
from simulator.serving.scalers.base import EndedRequests, PoolLoad, ReplicaLoad
from simulator.serving.setting import PoolSetting


def scale(fleet: Fleet, pool: PoolSetting) -> Generator[Any, Any, Any]:
    """Check a pool periodically until all requests have ended.

    A new replica takes requests after its start; a drained one takes none, and finishes its sequences.
    Requests that no replica takes wait, and count for the pool that prompts enter.
    """
    scaler, clock = pool.scaler, fleet.clock
    starting = seen = 0
    added_s = -np.inf
    decodes = pool.pool.role == "decode"
    # A prompt that waits brings the first pool back from zero; nothing would bring back the second.
    fewest = 1 if decodes else scaler.fewest

    def begin() -> Generator[Any, Any, Any]:
        nonlocal starting
        starting += 1
        stages = pool.stages(fleet.runs(pool))
        member = fleet.add(pool, clock.now, free_rank(fleet, pool))
        if stages is not None:
            fleet.starts.setdefault(pool.name, []).append({"at": clock.now, **stages})
        yield clock.timeout(scaler.start if stages is None else sum(stages.values()))
        starting -= 1
        fleet.open(member, clock.now)

    while not fleet.ended:
        yield clock.timeout(scaler.interval)
        for member in fleet.members:
            fleet.advance(member, clock.now)
        up = fleet.takers(pool)
        running = sum(member.replica.running for member in up)
        unplaced = 0 if decodes else fleet.unplaced
        waiting = sum(member.queue for member in up) + unplaced
        slots = pool.options.max_sequences
        if scaler.watches:
            met, seen = met_targets(fleet, seen), len(fleet.records)
            target = scaler.within(len(up) + starting, running, waiting, slots, met)
        elif scaler.reads_replicas:
            loads = tuple(ReplicaLoad(member.kv_use, member.queue) for member in up)
            target = scaler.by_load(PoolLoad(pool.pool.role, loads, starting, clock.now - added_s))
        elif scaler.reads_requests:
            target = scaler.by_requests(_served(fleet, pool, seen, len(up) + starting))
            seen = len(fleet.records)
        else:
            target = scaler.target_replicas(clock.now, len(up) + starting, running, waiting, slots)
        for _ in range(target - len(up) - starting):
            clock.process(begin())
            added_s = clock.now
        drained = sorted(up, key=lambda member: (member.load, -member.index))
        for member in drained[: max(len(up) - max(target, fewest), 0)]:
            fleet.close(member)
            member.drained_s = clock.now


def _served(fleet: Fleet, pool: PoolSetting, seen: int, size: int) -> EndedRequests:
    """The requests that ended behind the first ``seen`` ones, and the profile of a replica of the pool."""
    ended = fleet.records.since(seen)
    first_s, output = ended["first_s"] - ended["arrival_s"], ended["output"]
    tpot_s = (ended["last_s"] - ended["first_s"]) / np.maximum(output - 1, 1)
    prompt, out, ttft_s, mean_s = (
        float(values.mean()) if len(values) else 0.0 for values in (ended["prompt"], output, first_s, tpot_s)
    )
    rate, slots = len(output) / pool.scaler.interval, pool.options.max_sequences
    step_s = pool.costs.steps.step
    return EndedRequests(pool.pool.role, size, rate, prompt, out, ttft_s, mean_s, slots, step_s)


def free_rank(fleet: Fleet, pool: PoolSetting) -> int:
    """First rank of free devices for one more replica; behind the cluster's last where none is free."""
    size = pool.pool.devices
    # A drained replica keeps its devices until its sequences have ended.
    occupying = [
        member
        for member in fleet.members
        if member.pool.cluster is pool.cluster and (member.drained_s is None or member.load)
    ]
    ends = sorted({0, *(member.rank + member.pool.pool.devices for member in occupying)})
    return next(
        rank
        for rank in ends
        if all(
            rank + size <= member.rank or rank >= member.rank + member.pool.pool.devices
            for member in occupying
        )
    )


def met_targets(fleet: Fleet, seen: int) -> float:
    """Share of requests within the targets, of those that ended behind the first ``seen`` and those that have
    waited for too long; 1 where there is none."""
    slo, now = fleet.setting.serving.slo, fleet.clock.now
    ended = fleet.records.since(seen)
    met = np.ones(len(ended["arrival_s"]), bool)
    first_s = ended["first_s"] - ended["arrival_s"]
    whole_s = ended["last_s"] - ended["arrival_s"]
    if slo.ttft is not None:
        met &= first_s <= slo.ttft
    if slo.tpot is not None:
        met &= whole_s - first_s <= slo.tpot * np.maximum(ended["output"] - 1, 1)
    if slo.e2e is not None:
        met &= whole_s <= slo.e2e
    patience = slo.ttft or slo.e2e
    late = 0
    if patience is not None:
        queues = {
            id(batcher.waiting): batcher.waiting
            for member in fleet.members
            for batcher in member.replica.batchers
        }
        late = sum(
            now - sequence.request.arrival_s > patience for queue in queues.values() for sequence in queue
        )
    return float(met.sum()) / max(len(met) + late, 1) if len(met) + late else 1.0


def seconds_up(member: Member, end: float) -> float:
    """Seconds for which a replica held its devices: until the end of the run or of its drain."""
    until = end if member.drained_s is None else max(member.drained_s, member.last_s)
    return max(min(until, end) - member.started_s, 0.0)
