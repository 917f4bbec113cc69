"""Decoding replicas whose attention is on devices of its own: ratios of devices and micro batches to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from math import gcd
from pathlib import Path
from typing import Any

from core.errors import InfeasibleError
from planner.serving.attention_sides import BATCHES, POOL, RATIO, AttentionSide
from planner.serving.question import ServingQuestion
from planner.serving.shapes import ReplicaShape
from simulator.serving.kv_states import AttentionReplicas, attention_devices
from simulator.serving.kv_states.attention_ffn import attention_tokens
from simulator.serving.steps.table import IterationTable

Make = Callable[[dict[str, int]], ReplicaShape]
Tables = dict[tuple[Any, ...], IterationTable]

RATIOS = tuple(map(Fraction, ("1/4", "1/2", "1", "2", "4")))
IN_FLIGHT = (2, 3, 4)


def beside_attention(
    question: ServingQuestion, shape: ReplicaShape, make: Make, tables: Tables
) -> Iterator[ReplicaShape]:
    """The replica with attention devices beside it, by their number and the micro batches in flight.

    Args:
        question: the question.
        shape: a replica with its own attention.
        make: the same replica with other options of the engine.
        tables: step times of attention replicas by kind; new ones are added.
    """
    pool = shape.pool
    mixed = pool.data > 1 or pool.pipeline > 1 or pool.overlap is not None
    changed = pool.speculation is not None or pool.power_cap_w is not None or question.adapters is not None
    if POOL not in question.pools or mixed or changed:
        return
    ratios = (question.fix[RATIO],) if RATIO in question.fix else RATIOS
    most_batches = question.limit.get(BATCHES, IN_FLIGHT[-1])
    in_flight = (question.fix[BATCHES],) if BATCHES in question.fix else IN_FLIGHT
    in_flight = tuple(batches for batches in in_flight if batches <= most_batches)
    for ratio in ratios:
        count = ratio * pool.devices
        if count.denominator > 1 or pool.devices + count > question.devices:
            continue
        with suppress(InfeasibleError):
            side = _side(question, shape, int(count), tables)
            yield from (
                replace(make(side.options(shape.options)), attention=side.in_flight(batches))
                for batches in in_flight
            )


def _side(question: ServingQuestion, shape: ReplicaShape, count: int, tables: Tables) -> AttentionSide:
    """``count`` attention devices beside a replica, in tensor ranks as far as there are heads of KV.

    Raises:
        InfeasibleError: they do not hold a request beside attention's weights.
    """
    model, cluster = question.model, question.cluster
    tensor = 1 if model.mla else gcd(count, model.kv_heads, cluster.domain)
    formats = {name: getattr(shape.pool, name) for name in ("weights", "kv", "clock_mhz")}
    pool = question.pool(**formats, role=POOL, tensor=tensor, replicas=count // tensor).of(model)
    key = (POOL, tensor, *formats.values())
    replicas = AttentionReplicas(pool, cluster, "--pools")
    devices = attention_devices(replicas, model, cluster, shape.pool, Path(), tables.get(key))
    tables.setdefault(key, devices.table)
    block, longest = shape.options.block_tokens, question.prompt + question.output
    tokens = int(attention_tokens(devices) / block) * block
    if tokens < longest:
        raise InfeasibleError(f"{count} attention devices have room for {tokens:,} tokens of {longest:,.0f}")
    return AttentionSide(pool, devices, tokens, IN_FLIGHT[0])
