"""Tiers of one attention rank on the lanes of its replica and its nodes."""

from __future__ import annotations

from collections import OrderedDict

from simulator.models import Model
from simulator.serving.setting import PoolSetting, ServingSetting
from simulator.serving.state import KvTiers, Lanes, PlacedStore
from simulator.serving.state.stores import COPY_GAP_S
from simulator.serving.steps.costs import engine_of

GROUP_BLOCKS = 20.0
"""Neighbouring blocks of a group in the mean (assumed; FastSwitch allocates groups of tens of blocks)."""


def placed_tiers(
    setting: ServingSetting,
    pool: PoolSetting,
    rank: int,
    unit_tokens: int,
    lanes: Lanes,
    pooled: dict[str, OrderedDict[int, None]],
    waits: bool,
) -> KvTiers:
    """The tiers of one attention rank of a replica.

    Args:
        setting, pool: of the run.
        rank: of the replica's first device.
        unit_tokens: tokens of what is stored and read as a whole.
        lanes: of the run.
        pooled: content of remote tiers by pool and number, which replicas share; extended.
        waits: whether steps wait for writes.
    """
    ranks, token, deployment = pool.pool.data, pool.costs.kv_token_bytes, setting.deployment
    engine = engine_of(pool.pool.engine, setting.folder, setting.where)
    stores = []
    for number, tier in enumerate(deployment.tiers):
        shared = tier.place == "remote"
        devices, size = pool.pool.devices // ranks, token * unit_tokens
        store = PlacedStore(
            tier.place,
            int(tier.gigabytes * 1e9 / (1 if shared else ranks) / size),
            size,
            unit_tokens,
            deployment.recompute if tier.recompute is None else tier.recompute,
            lanes.route(pool.cluster, rank, devices, tier.place, "in"),
            lanes.route(pool.cluster, rank, devices, tier.place, "out"),
            tier.block_bytes or engine.host_block_bytes.value,
            pooled.setdefault(f"{pool.name} {number}", OrderedDict()) if shared else None,
        )
        stores.append(store)
    budget, steps = pool.options.token_budget, pool.costs.steps

    def prefill_s(tokens: int, before: int) -> float:
        chunk = min(max(tokens, 1), budget)
        return steps.step(((chunk, before),), 0, 0) * max(tokens, 1) / chunk

    return KvTiers(stores, lanes.links, prefill_s, waits)


def swap_seconds(model: Model, pool: PoolSetting) -> float:
    """Seconds to swap a token's KV in or out: its bytes, and its part of the gaps between copies.

    A block lies in two pieces a layer (keys and values), each of which vLLM 0 copies on its own; groups copy
    neighbouring blocks together (Shen et al., FastSwitch, arXiv 2411.18424).
    """
    seconds, copies = pool.costs.copy_s, pool.options.swap_copies
    if copies == "whole":
        return seconds
    pieces = 2.0 * model.cached_layers / pool.pool.pipeline
    blocks = GROUP_BLOCKS if copies == "groups" else 1.0
    return seconds + COPY_GAP_S * pieces / (pool.options.block_tokens * blocks)
