"""Step times and memory of one kind of replica, from a model, a cluster and a pool of a deployment."""

from __future__ import annotations

from hwmodels.cluster import Cluster
from hwmodels.errors import InfeasibleError
from hwmodels.loading import build
from simulator.models import Model
from simulator.serving.deployment import Pool
from simulator.serving.options import Options
from simulator.serving.roofline import FORMAT_BYTES, Roofline
from simulator.serving.step_times import ReplicaCosts


def options_of(pool: Pool, where: str = "deployment") -> Options:
    """The engine's options with those that the pool sets to other values.

    Raises:
        InputError: an unknown option or a wrong value.
    """
    return build(Options, pool.options, f"{where}.options")


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
