"""Pools of role `attention`: devices that hold the KV of another pool and compute its decodes' attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import InputError
from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.serving.kv_states.attention_ffn import AttentionFfn
from simulator.serving.kv_states.base import AttentionDevices
from simulator.serving.question.deployment import Pool
from simulator.serving.state import Route
from simulator.serving.steps.capped import iteration_table
from simulator.serving.steps.costs import MOST_CONTEXT, engine_of, options_of
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.table import IterationTable


@dataclass(frozen=True)
class AttentionReplicas:
    """A pool of role `attention` on its cluster."""

    pool: Pool
    cluster: Cluster
    where: str

    @property
    def devices(self) -> int:
        """Devices of all its replicas."""
        return self.pool.devices * self.pool.replicas


def check_attention(pools: Sequence[AttentionReplicas], served: Sequence[Pool], where: str) -> None:
    """Refuse attention pools without a pool to serve, or with a degree that attention has not.

    Raises:
        InputError: the reason.
    """
    if not pools:
        return
    decoding = [pool for pool in served if pool.role in ("decode", "mixed")]
    if not decoding:
        raise InputError("a pool of role attention needs one of role decode or mixed", f"{where}.pools")
    if len(pools) > 1 or len(decoding) > 1:
        raise InputError(
            f"one pool of role attention serves one that decodes; found {len(pools)} and {len(decoding)}",
            f"{where}.pools",
        )
    _check_ffn(decoding[0], where)
    attention, replicas = pools[0], decoding[0].replicas
    if attention.pool.data > 1 or attention.pool.pipeline > 1:
        raise InputError(
            "attention is divided by `tensor` and `replicas`, not by data or pipeline", attention.where
        )
    if attention.pool.replicas % replicas:
        raise InputError(
            f"{attention.pool.replicas} attention replicas are not divided evenly among {replicas} replicas; "
            f"allowed: multiples of {replicas}",
            f"{attention.where}.replicas",
        )


def _check_ffn(pool: Pool, where: str) -> None:
    """Refuse a pool of FFN devices that prefills, or whose ranks or stages have requests of their own.

    Raises:
        InputError: the reason.
    """
    if pool.state is None or pool.state.kind != AttentionFfn.name:
        return
    if pool.role != "decode":
        raise InputError(
            f"a pool whose state is {AttentionFfn.name} needs role decode, and a pool of role prefill beside "
            f"it; found {pool.role}",
            f"{where}.pools",
        )
    if pool.data > 1 or pool.pipeline > 1:
        raise InputError(
            f"FFN devices are divided by `tensor`, `expert` and `replicas`; found data {pool.data}, pipeline "
            f"{pool.pipeline}",
            f"{where}.pools",
        )


def attention_devices(
    attention: AttentionReplicas,
    model: Model,
    cluster: Cluster,
    pool: Pool,
    folder: Path,
    table: IterationTable | None = None,
) -> AttentionDevices:
    """Attention devices of one replica of a pool.

    Args:
        attention: the attention pool.
        model: whose KV it holds.
        cluster, pool: of the replica.
        folder: base of relative paths.
        table: step times of an attention replica of this kind; by default they are priced.

    Raises:
        InputError: an unknown engine or option.
    """
    attention_pool = attention.pool
    options = options_of(attention_pool, attention.cluster.device, folder, attention.where)
    engine = engine_of(attention_pool.engine, folder, f"{attention.where}.engine")
    price = StepPrice(model, attention.cluster.resized(attention_pool.devices), attention_pool, engine)
    context = min(options.max_context or model.max_sequence, MOST_CONTEXT)
    replicas = attention_pool.replicas // pool.replicas
    devices = replicas * attention_pool.devices
    if attention.cluster.name == cluster.name:
        route = Route.between(attention.cluster, 0, pool.devices, pool.devices, devices)
    else:
        route = Route.across(cluster, pool.devices, attention.cluster, devices)
    return AttentionDevices(
        table=table or iteration_table(price, options.token_budget, options.max_sequences, context),
        replicas=replicas,
        memory_bytes=options.memory_share * attention.cluster.device.memory_bytes * devices,
        bandwidth=route.bandwidth,
        latency_s=route.latency_s,
    )
