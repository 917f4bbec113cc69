"""Builder of empty replicas: KV blocks with tiers, draws of drafts."""

from __future__ import annotations

from collections import OrderedDict

from simulator.serving.fleet.placing import placed_tiers, swap_seconds
from simulator.serving.question.places import read_rate
from simulator.serving.replica.base import Listener, ReplicaParts, StepLoop
from simulator.serving.replica.guards import guard, guarded
from simulator.serving.replica.kv import (
    ChunkBlocks,
    LinkedBlocks,
    PagedBlocks,
    PrefixBlocks,
    TieredBlocks,
    TierStore,
    UnifiedBlocks,
)
from simulator.serving.replica.lent import LentSteps, shipped_seconds
from simulator.serving.replica.lockstep import LockstepReplica
from simulator.serving.replica.meter import Meter
from simulator.serving.replica.pipeline import PipelinedReplica
from simulator.serving.replica.replica import Replica
from simulator.serving.setting import PoolSetting, ServingSetting
from simulator.serving.state import Lanes, PlacedStore, Route
from simulator.serving.steps.speculation import Drafts
from simulator.serving.workload.source import Source


class Builder:
    """Makes the replicas of one run.

    Args:
        setting: the serving setting.
        source: the request stream; says whether requests have prefix ids.
        on_leave: called with every sequence that ends on a replica.
        stretches: sum decode stretches in closed form.
    """

    def __init__(self, setting: ServingSetting, source: Source, on_leave: Listener, stretches: bool) -> None:
        self._setting, self._source = setting, source
        self.on_leave, self._stretches = on_leave, stretches
        self._made = 0
        self._lends = setting.migration is not None and setting.migration.lends
        self._shared: dict[str, TierStore] = {}
        """Remote tiers by pool."""
        self.lanes = Lanes()
        self.stores: list[PlacedStore] = []
        """Tiers on shared links, of all replicas."""
        self._pooled: dict[str, OrderedDict[int, None]] = {}
        """Content of remote ones by pool."""

    def replica(self, pool: PoolSetting, meter: Meter, rank: int = 0) -> StepLoop:
        """An empty replica of a pool, whose first device has that rank."""
        options, costs, ranks = pool.options, pool.costs, pool.pool.data
        kvs = [self._blocks(pool, rank) for _ in range(ranks)]
        steps = costs.steps
        if self._lends:
            steps = LentSteps(steps, kvs[0], costs.kv_blocks, *self._shipped(pool))
        kind = LockstepReplica if ranks > 1 else PipelinedReplica if pool.pool.pipeline > 1 else Replica
        leave, stretches = self.on_leave, self._stretches
        replica: StepLoop = kind(
            ReplicaParts(options, pool.scheduler, kvs, steps, meter, leave, stretches, costs.copy_s)
        )
        if options.preemption == "swap":
            replica.copy_s = swap_seconds(pool.model, pool)
            for batcher in replica.batchers:
                batcher.beside_s = replica.copy_s if options.swap_asynchronous else 0.0
        for batcher in replica.batchers:
            batcher.window = costs.window
            batcher.receives = pool.pool.role == "decode"
        if pool.pool.speculation is not None:
            seed = [self._setting.seed, 11, self._made]
            self._made += 1
            for batcher in replica.batchers:
                batcher.drafts = Drafts(pool.pool.speculation, seed)
        return guard(replica) if guarded() else replica

    def _shipped(self, pool: PoolSetting) -> tuple[float, float]:
        """Seconds of messages to the farthest replica of the pool, and of each token's."""
        size, last = pool.pool.devices, pool.first_rank + (pool.pool.replicas - 1) * pool.pool.devices
        route = Route.between(pool.cluster, pool.first_rank, size, last, size)
        return shipped_seconds(pool.model, route)

    def _blocks(self, pool: PoolSetting, rank: int) -> PagedBlocks:
        """KV blocks of one attention rank."""
        options, blocks, source = pool.options, pool.costs.kv_blocks, self._source
        chunks = self._setting.serving.chunks
        if chunks is not None:
            tiers = placed_tiers(self._setting, pool, rank, chunks.tokens, self.lanes, self._pooled, False)
            self.stores += tiers.stores
            return ChunkBlocks(blocks, options.block_tokens, tiers)
        if pool.costs.adapters is not None and pool.costs.adapters.blocks:
            taken = pool.costs.adapters.blocks
            return UnifiedBlocks(blocks, options.block_tokens, options.prefix_caching, taken)
        if not (options.prefix_caching and source.shares_prefixes):
            return PagedBlocks(blocks, options.block_tokens, options.prefix_caching)
        deployment = self._setting.deployment
        if not deployment.tiers:
            return PrefixBlocks(blocks, options.block_tokens, source.prefix_tokens)
        if deployment.shares_links:
            linked = LinkedBlocks(blocks, options.block_tokens, source.prefix_tokens)
            tokens = linked.unit_tokens
            linked.tiers = placed_tiers(self._setting, pool, rank, tokens, self.lanes, self._pooled, True)
            self.stores += linked.tiers.stores
            return linked
        tiered = TieredBlocks(blocks, options.block_tokens, source.prefix_tokens, deployment.recompute)
        tiered.use(self._stores(pool, tiered.unit_tokens))
        return tiered

    def _stores(self, pool: PoolSetting, unit_tokens: int) -> list[TierStore]:
        ranks, token = pool.pool.data, pool.costs.kv_token_bytes
        stores = []
        for tier in self._setting.deployment.tiers:
            rate = read_rate(pool.cluster, pool.pool.devices // ranks, tier.place)
            shared = tier.place == "remote"
            room = tier.gigabytes * 1e9 / (1 if shared else ranks)
            store = TierStore(int(room / (token * unit_tokens)), token / rate)
            stores.append(self._shared.setdefault(pool.name, store) if shared else store)
        return stores
