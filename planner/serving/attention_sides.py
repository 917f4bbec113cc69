"""Attention devices beside a decoding replica: how many, what they hold, micro batches in flight."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from core.errors import InputError
from simulator.serving.kv_states import AttentionDevices
from simulator.serving.kv_states.attention_ffn import AttentionFfn
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.serving.question.state import KvState

POOL = "attention"
"""Of `ServingQuestion.pools`."""
RATIO, BATCHES = "attention_ratio", "micro_batches"
"""Fields that hold a ratio of attention to FFN devices and micro batches in flight."""
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

    def options(self, limits: EngineOptions) -> dict[str, int]:
        """Options of the decoding replica: sequences as every attention replica has them."""
        most_sequences = limits.max_sequences * self.pool.replicas
        return {"max_sequences": min(most_sequences, MOST_SEQUENCES, limits.token_budget)}

    def ratio(self, ffn_devices: int) -> str:
        """Attention to FFN devices in words, e.g. ``2:1``."""
        both = Fraction(self.devices, ffn_devices)
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
