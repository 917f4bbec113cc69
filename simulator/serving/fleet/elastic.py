"""Elastic expert parallelism: ranks join and leave a replica, and its experts move.

New ranks start beside serving. Then the replica stops: groups of ranks are formed anew, and every rank
receives the experts that it lacks. Sequences go on where they were: KV of ranks that leave is computed again,
that of the others stays. Otherwise the replica stops first and starts anew, and computes all KV again.

Source: vLLM, Elastic Expert Parallelism (vllm.ai/blog/2026-05-14-elastic-expert-parallelism).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from simulator.models import Model
from simulator.ops.counts import expert_parameters
from simulator.serving.fleet.fleet import Fleet
from simulator.serving.fleet.member import Member
from simulator.serving.question.resizes import Resize
from simulator.serving.replica.sequence import Sequence
from simulator.serving.setting import PoolSetting
from simulator.serving.steps.weight_only import stored_bytes


def moved_experts(model: Model, pool: PoolSetting, ranks: int) -> float:
    """Bytes of experts that a rank receives when ``ranks`` become those of the pool.

    A rank that joins receives all of its experts; where ranks leave, the others receive theirs.
    """
    if model.moe is None:
        return 0.0
    after = pool.pool.tensor * pool.pool.data
    expert_weights = model.moe_layers * model.moe.experts * expert_parameters(model)
    share = 1.0 / after if after > ranks else 1.0 / after - 1.0 / ranks
    return share * expert_weights * stored_bytes(model, pool.pool.stored)


def stop_seconds(resize: Resize, pool: PoolSetting, ranks: int) -> float:
    """Seconds for which a live resize stops the replica: experts cross the slowest links between ranks."""
    after = pool.pool.tensor * pool.pool.data
    size = moved_experts(pool.model, pool, ranks)
    if not size or max(after, ranks) == 1:
        return resize.pause
    stride = max(after, ranks) // 2
    return resize.pause + float(pool.cluster.collective("send_receive", size, 2, stride))


def resizes(fleet: Fleet) -> None:
    """Start the processes of resizes."""
    for resize, pool in zip(fleet.setting.deployment.resizes, fleet.setting.resized, strict=True):
        fleet.clock.process(_resize(fleet, resize, pool))


def _resize(fleet: Fleet, resize: Resize, pool: PoolSetting) -> Generator[Any, Any, Any]:
    clock = fleet.clock
    yield clock.timeout(resize.time)
    old = fleet.members[resize.replica]
    before = old.pool.pool.data
    while old.resized is not None:
        old = old.resized
        before = old.pool.pool.data
    if not old.up or before == resize.data:
        return
    stages = pool.stages(True) or {}
    fleet.starts.setdefault(pool.name, []).append({"at": clock.now, **stages})
    start_s = sum(stages.values())
    joined = max(resize.data - before, 0) * pool.pool.devices / resize.data
    if resize.live and joined:
        yield clock.timeout(start_s)
        if not old.up:
            return
    lost, ready_s = _evicted(fleet, old)
    new = fleet.add(pool, clock.now, old.rank)
    new.waited = start_s * joined if resize.live else 0.0
    old.resized, old.drained_s = new, clock.now
    ranks = pool.pool.tensor * before
    stop_s = stop_seconds(resize, pool, ranks) if resize.live else start_s
    yield clock.timeout(max(ready_s - clock.now, 0.0) + stop_s)
    fleet.open(new, clock.now)
    for sequence, rank in lost:
        if not resize.live or rank >= resize.data:
            sequence.loaded = 0
        fleet.arrive(new, 0, sequence, clock.now)


def _evicted(fleet: Fleet, member: Member) -> tuple[list[tuple[Sequence, int]], float]:
    """Take all sequences of a replica, each with the number of its rank; and the end of the planned steps."""
    now, sequences, ready_s = fleet.clock.now, [], fleet.clock.now
    fleet.close(member)
    member.replica.advance(now)
    for rank, batcher in enumerate(member.replica.batchers):
        for sequence in (*batcher.sequences(), *batcher.waiting):
            evicted = member.replica.evict(sequence, now)
            if evicted is not None:
                sequences.append((sequence, rank))
                ready_s = max(ready_s, evicted.ready_s)
    fleet.touch(member)
    return sequences, ready_s
