"""Step times and memory of one kind of replica, from a model, a cluster and a pool of a deployment."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwmodels.cluster import Cluster
from hwmodels.errors import InfeasibleError
from hwmodels.loading import build, looks_like_path
from simulator.models import Model
from simulator.serving.deployment import Pool
from simulator.serving.engines import Engine, engines
from simulator.serving.options import Options
from simulator.serving.roofline import FORMAT_BYTES, Roofline
from simulator.serving.step_times import ReplicaCosts


def engine_of(reference: str | Mapping[str, Any], folder: Path, where: str) -> Engine:
    """The engine preset that a pool names, gives as a path, or writes out.

    Raises:
        InputError: an unknown name or a wrong definition.
    """
    if isinstance(reference, str) and reference not in engines.names() and looks_like_path(reference):
        return engines.get(folder / reference, where)
    return engines.get(reference, where)


def options_of(pool: Pool, memory_bytes: float, folder: Path = Path(), where: str = "deployment") -> Options:
    """The engine's options with those that the pool sets to other values.

    Args:
        pool: names the engine.
        memory_bytes: of its devices, on which engines' defaults depend.
        folder: what paths are relative to.
        where: of the pool, for errors.

    Raises:
        InputError: an unknown engine or option, or a wrong value.
    """
    engine = engine_of(pool.engine, folder, f"{where}.engine")
    defaults = {
        "chunked_prefill": engine.chunked_prefill.value,
        "scheduler": engine.scheduler.value,
        "token_budget": engine.token_budget(memory_bytes),
        "max_sequences": engine.sequence_limit(memory_bytes),
        "block_tokens": engine.block_tokens.value,
        "memory_share": engine.memory_share.value,
        "prefix_caching": engine.prefix_caching.value,
        "asynchronous": engine.schedules_ahead.value,
        "preemption": engine.preemption.value,
        "stream_interval": engine.stream_interval.value,
        "ingest_s": engine.first_token_s.value,
    }
    return build(Options, {**defaults, **pool.options}, f"{where}.options")


def replica_costs(model: Model, cluster: Cluster, pool: Pool, options: Options) -> ReplicaCosts:
    """Costs of a replica of a pool.

    Raises:
        InfeasibleError: the weights leave no room for a KV block; says by how much.
    """
    ranks = pool.tensor * pool.data * pool.pipeline
    weights = model.parameters() * FORMAT_BYTES[pool.weights] / ranks
    device = cluster.device
    token = model.layers * model.kv_cache_width * FORMAT_BYTES[pool.kv or "bf16"]
    shared = min(pool.tensor, max(model.kv_heads, 1)) * pool.pipeline
    usable = options.memory_share * device.memory_bytes
    room = usable - weights
    blocks = options.kv_blocks or int(room * shared / token) // options.block_tokens
    if room < 0 or blocks < 1:
        raise InfeasibleError(
            f"{model.name} does not fit {pool.devices} x {device.name}: weights take "
            f"{weights / 2**30:.1f} GiB of {usable / 2**30:.1f} GiB a device"
        )
    idle = pool.devices * device.idle_watts + pool.devices / cluster.devices_per_node * cluster.host_watts
    return ReplicaCosts(Roofline.of(model, cluster, pool), blocks, token, weights, idle)
