"""A serving question with all references resolved and checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import InputError
from hwmodels.cluster import Cluster, clusters
from simulator.models import Model, models
from simulator.models.towers.pictures import Pictures, hearing, pictures_of
from simulator.scenario import find
from simulator.serving.adapters import make_kernel
from simulator.serving.checks import (
    check_deadline,
    check_lending,
    check_output,
    check_qualities,
    check_resize,
    check_roles,
    check_scalers,
    check_tenants,
    check_tiers,
    migration_of,
    part_asked,
)
from simulator.serving.encoders import (
    EncoderPool,
    check_encoders,
    encoder_pool,
    encoding_costs,
)
from simulator.serving.kv_states import (
    AttentionReplicas,
    check_attention,
)
from simulator.serving.pool_costs import PoolQuestion, pool_costs
from simulator.serving.question.adapters import Adapters
from simulator.serving.question.deployment import ASIDE, Deployment, Pool, pools_of
from simulator.serving.question.options import EngineOptions
from simulator.serving.question.resizes import Resize
from simulator.serving.question.start import StagedStart
from simulator.serving.replica.schedulers import Scheduler, make_scheduler
from simulator.serving.routers import Router, make_router
from simulator.serving.routers.migration import Migration
from simulator.serving.scalers import Scaler, make_scaler
from simulator.serving.starts import Loaded, WeightSource, make_source, stages
from simulator.serving.steps.costs import allowed_options, engine_of, options_of
from simulator.serving.steps.shared_tables import SharedTables
from simulator.serving.steps.step_times import ReplicaCosts
from simulator.serving.workload import Serving
from simulator.site import check_server

LENT_SHARE = 0.95
"""Longest request over the KV of all replicas where they lend blocks: some stay free for its growth."""


@dataclass(frozen=True)
class PoolSetting:
    """One pool with its engine's options and costs."""

    pool: Pool
    model: Model
    options: EngineOptions
    scheduler: Scheduler
    costs: ReplicaCosts
    first_rank: int
    """Rank of the first device of its first replica, on its cluster."""
    cluster: Cluster
    scaler: Scaler
    source: WeightSource | None = None
    """Source of the weights of replicas that start in stages."""

    @property
    def name(self) -> str:
        """Its name in reports."""
        return self.pool.name or self.pool.role

    @property
    def most_tokens(self) -> int:
        """Longest request that one rank can hold, with its adapter where both share memory."""
        beside = self.costs.adapters.blocks if self.costs.adapters is not None else 0
        room = (self.costs.kv_blocks - beside) * self.options.block_tokens
        window = self.costs.window
        return max(
            room // (1 + window.ratio), room - window.ratio * (window.tokens + self.options.block_tokens)
        )

    def stages(self, running: bool) -> dict[str, float] | None:
        """Seconds of a replica's start by stage; None where the pool states no stages.

        Args:
            running: another replica of the pool runs.
        """
        if self.pool.start is None or self.source is None:
            return None
        replica = Loaded(self.cluster, self.pool.devices, self.costs.weight_bytes)
        return stages(self.pool.start, self.source, replica, running)


@dataclass(frozen=True)
class ServingSetting:
    """The fixed inputs of a serving run."""

    title: str
    model: Model
    cluster: Cluster
    serving: Serving
    deployment: Deployment
    pools: tuple[PoolSetting, ...]
    router: Router
    migration: Migration | None = field(default=None, kw_only=True)
    resized: tuple[PoolSetting, ...] = field(default=(), kw_only=True)
    """What the pool of each of `deployment.resizes` is from then on."""
    attention: tuple[AttentionReplicas, ...] = field(default=(), kw_only=True)
    """Pools of role `attention`, which take no requests."""
    encoders: tuple[EncoderPool, ...] = field(default=(), kw_only=True)
    """The pool of role `encoder`, if there is one."""
    pictures: Pictures | None = field(default=None, kw_only=True)
    """Images of each request."""
    seed: int = 0
    folder: Path = field(default=Path())
    where: str = "scenario"

    @property
    def context(self) -> int:
        """Maximum tokens of a request: the minimum over the pools' engines."""
        return min(pool.options.max_context or pool.model.longest_request for pool in self.pools)

    @property
    def scaler(self) -> Scaler:
        """The scaler of the first pool that changes its replicas; the first pool's where none does."""
        scalers = [pool.scaler for pool in self.pools]
        return next((scaler for scaler in scalers if scaler.name != "fixed"), scalers[0])

    @property
    def sites(self) -> list[str]:
        """Measured servers from which the pools' factors were learned."""
        sources = [pool.pool.site.source for pool in self.pools if pool.pool.site is not None]
        return list(dict.fromkeys(sources))

    @property
    def gpus(self) -> int:
        """Devices of all replicas."""
        serving = sum(pool.pool.devices * pool.pool.replicas for pool in self.pools)
        return serving + sum(pool.devices for pool in (*self.attention, *self.encoders))

    @property
    def longest_request(self) -> int:
        """Tokens of the longest request that every pool can hold."""
        tokens = min(pool.most_tokens for pool in self.pools)
        if self.migration is None or not self.migration.lends:
            return tokens
        return int(LENT_SHARE * self.pools[-1].pool.replicas * tokens)

    @property
    def occupied(self) -> list[tuple[Cluster, int]]:
        """Clusters of the pools, with the devices that they take."""
        taken: dict[str, int] = {}
        for pool in self.pools:
            taken[pool.cluster.name] = (
                taken.get(pool.cluster.name, 0) + pool.pool.devices * pool.pool.replicas
            )
        for replicas in (*self.attention, *self.encoders):
            taken[replicas.cluster.name] = taken.get(replicas.cluster.name, 0) + replicas.devices
        by_name = {pool.cluster.name: pool.cluster for pool in (*self.pools, *self.attention, *self.encoders)}
        return [(by_name[name], count) for name, count in taken.items()]


def serving_setting(
    title: str,
    model: Model,
    cluster: Cluster,
    serving: Serving,
    deployment: Deployment,
    seed: int,
    folder: Path,
    where: str,
    tables: SharedTables | None = None,
) -> ServingSetting:
    """Check a deployment on a cluster, and price its pools; ``tables`` shares step times between questions.

    Raises:
        InputError: an unknown name or option, a wrong value, more devices than the cluster has.
        InfeasibleError: the model does not fit a replica.
    """
    place = f"{where}: deployment"
    if serving.audio:
        model = hearing(model, f"{where}: workload.audio")
    kind = "audio" if serving.audio else "images"
    pictures = pictures_of(model, serving.audio or serving.images, f"{where}: workload.{kind}")
    if serving.output is not None:
        check_output(model, serving.output.mean(), f"{where}: workload.output")
    model = part_asked(model, serving.output)
    pools, attention, encoders, taken = _placed_pools(model, cluster, deployment, folder, place, tables)
    if pictures is not None:
        # The answer holds what the note says is left out.
        model = model.model_copy(update={"left_out": ""})
        if not encoders:
            before = serving.prefix.tokens if serving.prefix else 0
            for number, pool in enumerate(pools):
                question = (pool.model, pool.cluster, pool.pool, pool.first_rank)
                encoding = encoding_costs(pool.costs, *question, pictures, before, folder, place)
                pools[number] = dataclasses.replace(pool, costs=encoding)
    check_roles([(pool.pool.role, pool.model.name) for pool in pools], f"{place}.pools")
    resized = [
        _resized(resize, deployment, pools, taken, folder, place, tables, attention)
        for resize in deployment.resizes
    ]
    router = make_router(deployment.router, deployment.router_options, f"{place}.router")
    check_qualities(router, [pool.name for pool in pools], place)
    costs, block = pools[0].costs, pools[0].options.block_tokens
    check_tiers(serving, deployment, str(pools[0].pool.engine), costs.kv_token_bytes, block, where)
    check_deadline(serving, (pool.costs.steps for pool in pools), where)
    moving = [pool for pool in pools if pool.pool.role != "prefill"]
    several = any(pool.pool.replicas > 1 or pool.scaler.name != "fixed" for pool in moving)
    migration = migration_of(deployment.migrate, several, place)
    check_scalers(serving, [(pool.pool.role, pool.scaler) for pool in pools], where)
    check_lending(serving, deployment, migration, where)
    check_tenants(serving, (pool.scheduler for pool in pools), place)
    if migration is not None and migration.lends:
        # A prompt in parts would wait for blocks that another one holds.
        whole_prompts = pools[0].options.model_copy(update={"admits_whole": True})
        pools[0] = dataclasses.replace(pools[0], options=whole_prompts)
    return ServingSetting(
        title,
        model,
        cluster,
        serving,
        deployment,
        tuple(pools),
        router,
        seed,
        folder,
        where,
        migration=migration,
        attention=tuple(attention),
        encoders=tuple(encoders),
        pictures=pictures,
        resized=tuple(resized),
    )


def _placed_pools(
    model: Model,
    cluster: Cluster,
    deployment: Deployment,
    folder: Path,
    where: str,
    tables: SharedTables | None,
) -> tuple[list[PoolSetting], list[AttentionReplicas], list[EncoderPool], dict[str, int]]:
    """The pools side by side on their clusters, those of roles attention and encoder, and the devices taken.

    Raises:
        InputError: an unknown name or option, a wrong value, more devices than a cluster has.
        InfeasibleError: the model does not fit a replica.
    """
    written = pools_of(deployment, where)
    places = [where + (f".pools.{i}" if deployment.pools else "") for i in range(len(written))]
    attention = [
        AttentionReplicas(pool.of(model), _cluster_of(pool, cluster, folder, place), place)
        for pool, place in zip(written, places, strict=True)
        if pool.role == "attention"
    ]
    check_attention(attention, [pool for pool in written if pool.role not in ASIDE], where)
    check_encoders(written, model, where)
    pools: list[PoolSetting] = []
    encoders: list[EncoderPool] = []
    taken: dict[str, int] = {}
    for pool, place in zip(written, places, strict=True):
        pool_cluster = _cluster_of(pool, cluster, folder, place)
        rank = taken.get(pool_cluster.name, 0)
        devices = (
            pool_cluster.devices
            if pool_cluster is cluster
            else pool_cluster.nodes * pool_cluster.devices_per_node
        )
        served = model if pool.model is None else find(models, pool.model, folder, f"{place}.model")
        pool = pool.of(served)
        used = (
            pool_cluster.resized(max(rank + pool.devices, 1))
            if rank + pool.devices <= devices
            else pool_cluster
        )
        if pool.role == "encoder":
            engine = engine_of(pool.engine, folder, f"{place}.engine")
            encoders.append(encoder_pool(model, pool, pool_cluster, used, rank, engine))
        elif pool.role != "attention":
            question = (served, deployment, pool, pool_cluster, used, rank, folder, place, where)
            pools.append(_pool_setting(*question, tables, attention))
        taken[pool_cluster.name] = rank = rank + pool.devices * pool.replicas
        if rank > devices:
            has = "the job" if pool_cluster is cluster else pool_cluster.name
            raise InputError(f"the pools occupy {rank} devices, {has} has {devices}", where)
    return pools, attention, encoders, taken


def _resized(
    resize: Resize,
    deployment: Deployment,
    pools: Sequence[PoolSetting],
    taken: Mapping[str, int],
    folder: Path,
    where: str,
    tables: SharedTables | None,
    attention: Sequence[AttentionReplicas],
) -> PoolSetting:
    """The pool of a replica whose ranks join or leave, from then on; they start from a peer by default.

    Raises:
        InputError: a combination that is not modelled, or more devices than the cluster has.
        InfeasibleError: the model does not fit fewer ranks.
    """
    place = f"{where}.resizes.{deployment.resizes.index(resize)}"
    pool = check_resize(resize, deployment, pools, bool(attention), place)
    more = pool.pool.tensor * max(resize.data - pool.pool.data, 0)
    devices = pool.cluster.devices
    if (occupied := taken[pool.cluster.name]) + more > devices:
        raise InputError(
            f"{more} devices join {occupied}, {pool.cluster.name} has {devices}", f"{place}.data"
        )
    start = pool.pool.start or StagedStart.model_validate({"from": "peer"})
    expert = pool.pool.tensor * resize.data // pool.pool.experts_cut
    changed = pool.pool.model_copy(update={"data": resize.data, "expert": expert, "start": start})
    rank = min(pool.first_rank, devices - changed.devices)
    used = pool.cluster.resized(rank + changed.devices)
    question = (pool.model, deployment, changed, pool.cluster, used, rank, folder, place, where)
    return _pool_setting(*question, tables, attention)


def _cluster_of(pool: Pool, cluster: Cluster, folder: Path, place: str) -> Cluster:
    """The pool's own cluster, or the scenario's."""
    if pool.cluster is None:
        return cluster
    pool_cluster = find(clusters, pool.cluster, folder, f"{place}.cluster")
    return cluster if pool_cluster.name == cluster.name else pool_cluster


def _pool_setting(
    model: Model,
    deployment: Deployment,
    pool: Pool,
    pool_cluster: Cluster,
    used: Cluster,
    rank: int,
    folder: Path,
    place: str,
    where: str,
    tables: SharedTables | None,
    attention: Sequence[AttentionReplicas],
) -> PoolSetting:
    """A pool whose first replica begins at a rank of its cluster.

    Args:
        model, deployment, pool: the question.
        own, used: cluster of the pool, and its part up to the end of the first replica.
        rank: of the first replica's first device.
        folder: base of relative paths.
        place, where: key paths of the pool and of the deployment, for errors.
        tables: step times shared between questions.
        attention: pools of role `attention`.

    Raises:
        InputError: an unknown name or option, a wrong value.
        InfeasibleError: the model does not fit a replica.
    """
    if pool.data > 1 and pool.pipeline > 1:
        raise InputError("data-parallel attention with pipeline stages is not modelled", place)
    engine = engine_of(pool.engine, folder, f"{place}.engine")
    if pool.site is not None:
        check_server(pool.site, pool_cluster.device.name, engine.name, f"{place}.site")
    options = options_of(pool, pool_cluster.device, folder, place)
    options = allowed_options(options, model, used, pool, engine)
    if pool.speculation is not None:
        options = options.model_copy(update={"preemption": "none"})
    if pool.role == "decode" and "scheduler" not in pool.options:
        # Prompts are computed in another pool: arriving sequences join the running decodes.
        options = options.model_copy(update={"scheduler": "chunked", "scheduler_options": {}})
    if deployment.adapters is not None:
        options = _batches_of(deployment.adapters, options, pool, place, f"{where}.adapters")
    scheduler = make_scheduler(options.scheduler, options.scheduler_options, f"{place}.options.scheduler")
    beside = attention, deployment.adapters, f"{where}.adapters"
    question = PoolQuestion(model, used, pool, options, engine, folder, place, *beside)
    costs = pool_costs(question, tables)
    scaler = make_scaler(pool.scaler, pool.scaler_options, f"{place}.scaler")
    source = pool.start and make_source(pool.start, f"{place}.start")
    setting = PoolSetting(pool, model, options, scheduler, costs, rank, pool_cluster, scaler, source)
    if staged := setting.stages(True):
        looking = scaler.model_copy(update={"start": sum(staged.values())})
        setting = dataclasses.replace(setting, scaler=looking)
    return setting


def _batches_of(
    adapters: Adapters, options: EngineOptions, pool: Pool, where: str, adapters_where: str
) -> EngineOptions:
    """Options of an engine that serves adapters: one at a time where their kernel does not mix them.

    Raises:
        InputError: an unknown kernel, or another scheduler for one that does not mix.
    """
    if make_kernel(adapters, adapters_where).mixes:
        return options
    if pool.options.get("scheduler", "one-adapter") != "one-adapter":
        raise InputError(
            f"the kernel {adapters.kernel!r} computes one adapter at a time, which the scheduler one-adapter "
            f"does; found {options.scheduler}",
            f"{where}.options.scheduler",
        )
    return options.model_copy(update={"scheduler": "one-adapter", "scheduler_options": {}})
