"""Step times of a replica whose sequences have adapters, and the memory that those take."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from core.errors import InfeasibleError, InputError
from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.serving.adapters.base import AdapterKernel
from simulator.serving.adapters.blocks import Blocks
from simulator.serving.adapters.merged import Merged
from simulator.serving.adapters.popularity import mean_distinct
from simulator.serving.adapters.sgmv import Sgmv
from simulator.serving.adapters.shapes import AdapterShapes
from simulator.serving.question.adapters import Adapters
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.serving.question.policies import make_policy
from simulator.serving.steps.step_times import (
    Array,
    Chunk,
    HeldAdapters,
    RankBatch,
    ReplicaCosts,
    StepTimes,
    Stretch,
)

kernels: Mapping[str, type[AdapterKernel]] = {kind.name: kind for kind in (Sgmv, Merged, Blocks)}


def make_kernel(adapters: Adapters, where: str) -> AdapterKernel:
    """The kernel that a deployment names, with its parameters; raises as `make_policy`."""
    return make_policy(
        "adapter kernel", kernels, adapters.kernel, adapters.options, f"{where}.kernel", f"{where}.options"
    )


class AdapterSteps:
    """`StepTimes` whose sequences have adapters.

    The number of different adapters in a batch is the mean for its number of sequences.

    Args:
        target: step times without adapters.
        extra_s: seconds that a step is longer, by its number of sequences.
        token_s: seconds that it is longer for each query token.
    """

    def __init__(self, target: StepTimes, extra_s: Array, token_s: float) -> None:
        self.target, self.stages = target, target.stages
        self._extra, self.token_s = extra_s.tolist(), token_s

    def _more(self, prefills: Sequence[Chunk], decodes: int, queries: int) -> float:
        sequences = min(len(prefills) + decodes, len(self._extra) - 1)
        tokens = decodes * queries + sum(chunk[0] for chunk in prefills)
        return self._extra[sequences] + self.token_s * tokens

    def by_sequences(self, sequences: NDArray[np.int64]) -> Array:
        """Seconds that steps are longer by their numbers of sequences."""
        return np.array(self._extra)[np.minimum(sequences, len(self._extra) - 1)]

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """See `StepTimes.step`."""
        return self.target.step(prefills, decodes, kv_tokens, queries) + self._more(
            prefills, decodes, queries
        )

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """See `StepTimes.stretch`: a batch that only decodes keeps its adapters."""
        first_s, growth_s, steps = self.target.stretch(decodes, kv_tokens, queries)
        return first_s + self._more((), decodes, queries), growth_s, steps

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """See `StepTimes.lockstep`: the rank with most to do counts."""
        more = max((self._more(rank.prefills, rank.decodes, queries) for rank in ranks), default=0.0)
        return self.target.lockstep(ranks, queries) + more

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """Power of the base model's step."""
        return self.target.watts(tokens, decodes, kv_tokens, seconds)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """The base model's parts, and adapters."""
        parts = self.target.parts(prefills, decodes, kv_tokens)
        return {**parts, "adapters": self._more(prefills, decodes, 1)}


def with_adapters(
    costs: ReplicaCosts,
    adapters: Adapters,
    model: Model,
    cluster: Cluster,
    pool: Pool,
    options: EngineOptions,
    where: str,
) -> ReplicaCosts:
    """Costs of a replica that serves adapters: longer steps, and fewer KV blocks.

    Raises:
        InputError: an unknown kernel or a wrong parameter of it; KV that cannot share memory with adapters.
        InfeasibleError: the adapters leave no KV block.
    """
    kernel, devices = make_kernel(adapters, where), pool.tensor * pool.pipeline
    shapes = dataclasses.replace(AdapterShapes.of(model, adapters), weight_bytes=costs.weight_bytes * devices)
    size = kernel.bytes(shapes)
    running = options.max_sequences if kernel.mixes else 1
    room = min(adapters.count, running * pool.data)
    block = costs.kv_token_bytes * options.block_tokens
    shared = adapters.memory == "shared"
    if shared and options.prefix_caching:
        raise InputError("KV that shares memory with adapters needs options.prefix_caching: false", where)
    adapter_blocks = ceil(size / block) if shared else 0
    taken = adapter_blocks if shared else room * size / block
    if isinstance(adapters.memory, float):
        room = int(1e9 * adapters.memory / size)
        taken = room * size / block
    blocks = int(costs.kv_blocks - taken)
    if blocks < 1 or room < 1:
        loaded, gigabytes = max(room, 1), adapters.memory if isinstance(adapters.memory, float) else None
        raise InfeasibleError(
            f"{where}: {loaded:,} adapters of rank {adapters.rank} take {loaded * size / 1e9:.2f} GB; beside "
            f"the weights are {costs.kv_blocks * block / 1e9:.2f} GB for them and KV, and `memory` is "
            f"{'one for each running sequence' if gigabytes is None else f'{gigabytes:g} GB'}; "
            "fewer or smaller adapters, another `adapters.memory` or more devices help"
        )
    distinct = np.maximum(mean_distinct(adapters, 2 * options.max_sequences), 1.0)
    extra = kernel.seconds(distinct, shapes, pool.tensor, cluster.device)
    extra[0] = 0.0
    steps = AdapterSteps(costs.steps, extra, kernel.token_s(shapes, pool.tensor, cluster.device))
    link = cluster.device.kernels.calibration.host_copy
    load_s = shapes.layers * link.overhead_s + size / cluster.rates.copies(devices)
    resident = HeldAdapters(room, load_s, size, adapter_blocks)
    return dataclasses.replace(
        costs, steps=steps, kv_blocks=costs.kv_blocks if shared else blocks, adapters=resident
    )
