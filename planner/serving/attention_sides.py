"""Decoding replicas whose attention is on devices of its own: ratios of devices and micro batches to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from math import gcd
from pathlib import Path
from typing import TYPE_CHECKING, Any

from core.errors import InfeasibleError, InputError
from planner.serving.question import ServingQuestion
from simulator.serving.kv_states import AttentionDevices, AttentionReplicas, attention_devices
from simulator.serving.kv_states.attention_ffn import AttentionFfn, attention_tokens
from simulator.serving.question.deployment import Pool
from simulator.serving.question.state import KvState
from simulator.serving.steps.table import IterationTable

if TYPE_CHECKING:
    from planner.serving.shapes import ReplicaShape

Make = Callable[[dict[str, int]], "ReplicaShape"]
Tables = dict[tuple[Any, ...], IterationTable]

POOL = "attention"
"""Of `ServingQuestion.pools`."""
RATIO, BATCHES = "attention_ratio", "micro_batches"
"""Fields that hold a ratio of attention to FFN devices and micro batches in flight."""
RATIOS = tuple(map(Fraction, ("1/4", "1/2", "1", "2", "4")))
IN_FLIGHT = (2, 3, 4)
MOST_SEQUENCES = 4096
"""Decoding sequences of a replica that are tabulated at most."""


@dataclass(frozen=True, eq=False)
class AttentionSide:
    """Attention devices of one decoding replica.

    Attributes:
        pool: as many replicas as serve it.
        replicas: as its steps see them.
        kv_tokens: tokens whose KV they hold.
        batches: micro batches in flight.
    """

    pool: Pool
    replicas: AttentionDevices
    kv_tokens: int
    batches: int

    @property
    def devices(self) -> int:
        """Devices of all its replicas."""
        return self.pool.devices * self.pool.replicas

    @property
    def state(self) -> KvState:
        """The state of the decoding pool's KV."""
        return KvState(kind=AttentionFfn.name, options={"in_flight": self.batches})

    def in_flight(self, batches: int) -> AttentionSide:
        """The same with other micro batches."""
        return replace(self, batches=batches)

    def options(self, shape: ReplicaShape) -> dict[str, int]:
        """Options of the decoding replica: sequences as every attention replica has them."""
        most = shape.options.max_sequences * self.pool.replicas
        return {"max_sequences": min(most, MOST_SEQUENCES, shape.options.token_budget)}

    def ratio(self, shape: ReplicaShape) -> str:
        """Attention to FFN devices in words, e.g. ``2:1``."""
        both = Fraction(self.devices, shape.pool.devices)
        return f"{both.numerator}:{both.denominator}"


def read_ratio(text: Any, where: str) -> Fraction:
    """Attention devices for each FFN device, of ``A:F``.

    Raises:
        InputError: another form, or a side without devices.
    """
    parts = str(text).split(":")
    if len(parts) != 2 or not all(part.isdigit() and len(part) < 5 for part in parts):
        raise InputError(f"must be attention to FFN devices, A:F (2:1, 1:4), found {text!r}", where)
    attention, ffn = map(int, parts)
    if not attention or not ffn:
        side = "attention" if not attention else "FFN"
        raise InputError(f"leaves no {side} devices, found {text!r}; both sides need at least 1", where)
    return Fraction(attention, ffn)


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
    most = question.limit.get(BATCHES, IN_FLIGHT[-1])
    in_flight = (question.fix[BATCHES],) if BATCHES in question.fix else IN_FLIGHT
    in_flight = tuple(batches for batches in in_flight if batches <= most)
    for ratio in ratios:
        count = ratio * pool.devices
        if count.denominator > 1 or pool.devices + count > question.devices:
            continue
        with suppress(InfeasibleError):
            side = _side(question, shape, int(count), tables)
            yield from (
                replace(make(side.options(shape)), attention=side.in_flight(batches)) for batches in in_flight
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
