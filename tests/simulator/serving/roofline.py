"""Step times from data-sheet figures alone: a bound, and a stand-in where no kernels are calibrated.

A step takes the longer of memory reads and computation, at fixed shares of the peaks, plus two
all-reduces a layer. All terms are linear in KV tokens, so decode stretches sum exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.ops.counts import matmul_flops_per_token, model_parameters
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.step_times import Array, Chunk, RankBatch, Stretch

READ_SHARE, FLOP_SHARE = 0.8, 0.6
"""Share of peak bandwidth and of peak FLOP/s that kernels reach (assumed)."""
REDUCE_S = 8e-6
"""Latency of a small all-reduce inside a node."""

FORMAT_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5, "fp4": 0.5625}
NO_END = 1 << 60


@dataclass(frozen=True)
class RooflineSteps:
    """Linear step times: reads of weights and KV, FLOPs of tokens, latency of all-reduces."""

    stages: int
    fixed_s: float
    """Reading the weights, and all-reduces of an empty step."""
    token_s: float
    """FLOPs and all-reduce bytes of one token."""
    kv_s: float
    """Reading one KV token, all layers."""
    pair_s: float
    """FLOPs of attention of one query with one key, all layers."""
    busy_watts: float

    @classmethod
    def of(cls, model: Model, cluster: Cluster, pool: Pool) -> RooflineSteps:
        """Figures of one replica of a pool."""
        device, ranks = cluster.device, pool.tensor * pool.data
        size = FORMAT_BYTES[pool.stored]
        dtype = {1.0: "fp8"}.get(FORMAT_BYTES[pool.activations or pool.stored], "bf16")
        peak = FLOP_SHARE * device.peak_flops.get(dtype, max(device.peak_flops.values()))  # type: ignore[call-overload]
        read = READ_SHARE * device.memory_bandwidth
        weights = model_parameters(model) * size / ranks
        kv = model.cached_layers * model.kv_cache_width * FORMAT_BYTES[pool.kv or "bf16"]
        reduces = 2 * model.layers * (REDUCE_S if pool.tensor > 1 else 0.0)
        moved = 0.0
        if pool.tensor > 1:
            moved = 2 * model.layers * 2 * model.hidden * 2 / cluster.levels[0].bandwidth
        pair = 2.0 * model.cached_layers * model.heads * (model.head_dim + model.v_head_dim)
        watts = pool.devices * (0.3 * device.idle_watts + 0.7 * device.tdp_watts)
        return cls(
            stages=pool.pipeline,
            fixed_s=weights / read + reduces,
            token_s=matmul_flops_per_token(model) / ranks / peak + moved,
            kv_s=kv / min(pool.tensor, max(model.kv_heads, 1)) / read,
            pair_s=pair / pool.tensor / peak,
            busy_watts=watts + pool.devices / cluster.devices_per_node * cluster.host_watts,
        )

    def step(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int, queries: int = 1) -> float:
        """Seconds of one step; see `StepTimes`."""
        seconds = self.fixed_s + self.token_s * decodes * queries + self.kv_s * kv_tokens
        for tokens, before in prefills:
            seconds += self.token_s * tokens + self.pair_s * tokens * (before + 0.5 * tokens)
        return seconds

    def stretch(self, decodes: int, kv_tokens: int, queries: int = 1) -> Stretch:
        """Decode steps from here on; the line never ends."""
        first = self.fixed_s + self.token_s * decodes * queries + self.kv_s * kv_tokens
        return first, self.kv_s * decodes * queries, NO_END

    def lockstep(self, ranks: Sequence[RankBatch], queries: int = 1) -> float:
        """Seconds of one step of all ranks: the longest rank's."""
        return max(self.step(batch.prefills, batch.decodes, batch.kv_tokens) for batch in ranks)

    def watts(self, tokens: Array, decodes: Array, kv_tokens: Array, seconds: Array) -> Array:
        """A fixed power between idle and the limit."""
        return np.full(np.shape(tokens), self.busy_watts)

    def parts(self, prefills: Sequence[Chunk], decodes: int, kv_tokens: int) -> Mapping[str, float]:
        """Seconds by part."""
        attention = self.kv_s * kv_tokens
        attention += sum(self.pair_s * tokens * (before + 0.5 * tokens) for tokens, before in prefills)
        return {"linear": self.step(prefills, decodes, kv_tokens) - attention, "attention": attention}
