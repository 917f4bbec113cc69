"""Attention and FFN of decodes on devices of their own, micro batches on their way between them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

import numpy as np
from pydantic import Field

from simulator.serving.kv_states.base import SHIPPED_BYTES, AttentionDevices, ReplicaFacts, State
from simulator.serving.steps.memory import attention_weight_bytes, kv_token_bytes, sliding_share
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.table import IterationTable

LEAST_IN_FLIGHT, MOST_IN_FLIGHT = 2, 16
"""Micro batches: one alone leaves each side idle while the other works."""


class AttentionFfn(State):
    """A pool of role `attention` has the KV and attention's weights; the decoding pool has FFN and experts.

    Hidden states cross the links twice a layer, to the ranks of each token's experts and back. Micro batches
    follow each other: a step of m of them takes as long as its busiest side needs for all, or as one of them
    needs for the whole way. Weights of attention stay on the decoding pool, which computes preempted
    sequences again.
    """

    name: ClassVar[str] = "attention-ffn"
    rule: ClassVar[str] = "a pool of role attention has decodes' attention and its products, others the FFN"
    source: ClassVar[str] = "Zhu et al., MegaScale-Infer (arXiv 2504.02263); Step-3 (arXiv 2507.19427)"
    in_flight: int = Field(
        default=3,
        ge=LEAST_IN_FLIGHT,
        le=MOST_IN_FLIGHT,
        description=f"micro batches in flight: {LEAST_IN_FLIGHT} to {MOST_IN_FLIGHT}",
    )

    @property
    def read(self) -> float:
        """See `State.read`."""
        return 0.0

    def tokens(self, replica: ReplicaFacts) -> float:
        """See `State.tokens`."""
        return 0.0 if replica.attention is None else attention_tokens(replica.attention)

    def away_s(self, replica: ReplicaFacts, decodes: int, kv_tokens: float, new: int) -> float:
        """See `State.away_s`: one batch that nothing runs beside, in steps with prompts."""
        devices, table = replica.attention, replica.table
        if devices is None or table is None or not decodes:
            return 0.0
        sent = decodes * shipped_bytes(table.price) / devices.bandwidth
        return self._there_s(devices, decodes, kv_tokens, 1) + sent + way_s(table.price, devices)

    def decode_s(self, replica: ReplicaFacts, decodes: int, kv_tokens: int, queries: int) -> float | None:
        """See `State.decode_s`."""
        devices, table = replica.attention, replica.table
        if devices is None or table is None:
            return None
        batches = min(self.in_flight, decodes)
        part = -(-decodes // batches)
        host = host_s(table)
        computing_s = products_s(table, part * queries) + table.decode_attention_s(part, part)
        here = table.step((), part, part, queries) - host - computing_s
        there = self._there_s(devices, part, kv_tokens * part / decodes, queries)
        sent = part * queries * shipped_bytes(table.price) / devices.bandwidth
        return host + turn_s(batches, here, there, sent, way_s(table.price, devices))

    @staticmethod
    def _there_s(devices: AttentionDevices, decodes: int, kv_tokens: float, queries: int) -> float:
        """Seconds of attention and its products on the attention devices, all layers."""
        share, table = -(-decodes // devices.replicas), devices.table
        keys = max(int(kv_tokens / devices.replicas), share)
        return products_s(table, share * queries) + table.decode_attention_s(share, keys)


def turn_s(
    batches: Any, here: Any, there: Any, sent: Any, way: Any, larger: Callable[[Any, Any], Any] = max
) -> Any:
    """Seconds of all layers of a step: numbers, or arrays with ``larger`` of arrays.

    Args:
        batches: micro batches.
        here, there: seconds of one of them on FFN and on attention devices.
        sent: seconds of the link for one of them, both ways; each way carries at the same time.
        way: latency of all crossings of the link.
        larger: the larger of two.
    """
    busiest = larger(larger(batches * here, batches * there), 0.5 * batches * sent)
    return larger(busiest, here + there + sent + way)


def products_s(table: IterationTable, tokens: int) -> float:
    """Seconds of attention's products for a number of decoding tokens, at most the largest of the table."""
    return table.attention_products_s.item(min(tokens, len(table.attention_products_s) - 1))


def host_s(table: IterationTable) -> float:
    """Seconds of the host around a step, once for all its micro batches; launches of layers not counted."""
    return table.around_s - table.price.gaps


def way_s(price: StepPrice, devices: AttentionDevices) -> float:
    """Seconds of latency of all crossings in a step: two a layer."""
    return 2.0 * price.model.layers * devices.latency_s


@cache
def _copies(experts: int, top_k: int) -> float:
    """Ranks of experts that a token reaches, of ranks with equal shares."""
    return experts * -float(np.expm1(top_k * np.log1p(-1.0 / experts))) if experts > 1 else 1.0


def shipped_bytes(price: StepPrice) -> float:
    """Bytes of a token's hidden states between attention and FFN devices, both ways, over all layers.

    Layers with experts send to each rank that holds one of the token's experts, others once.
    """
    model, expert = price.model, price.pool.expert
    copies = _copies(expert, model.moe.top_k) if model.moe else 1.0
    crossings = model.moe_layers * copies + (model.layers - model.moe_layers)
    return 2.0 * SHIPPED_BYTES * model.hidden * crossings


def attention_tokens(devices: AttentionDevices) -> float:
    """Tokens whose KV the attention devices hold beside attention's weights; 0 where these do not fit."""
    price = devices.table.price
    pool = price.pool
    token = kv_token_bytes(price.model, pool.tensor, 1, pool.kv, sliding_share(price)) * pool.tensor
    weights = attention_weight_bytes(price) * devices.replicas * pool.tensor
    return max(devices.memory_bytes - weights, 0.0) / token
