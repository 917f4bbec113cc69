"""Limits that TensorRT-LLM's benchmark gives a server where its caller states none.

`trtllm-bench throughput` estimates how many requests memory holds, and sets the batch limit and the token
budget from it (tensorrt_llm/bench/build/tuning.py, ``calc_engine_setting`` and ``finetune_setting``).
"""

from __future__ import annotations

import math
from typing import NamedTuple

from simulator.ops.counts import model_parameters
from simulator.serving.steady.kinds import ReplicaKind

MOST_BATCH, LEAST_BATCH = 4096, 64
"""Sequences of a step."""
MOST_TOKENS, LEAST_TOKENS = 32768, 2048
"""Tokens of a step."""
BATCH_GRAIN = (256, 32), (1024, 128), (math.inf, 256)
TOKEN_GRAIN = (4096, 256), (8192, 512), (math.inf, 1024)
"""Multiples to which estimates below a limit are rounded up."""
VALUE_BYTES = {"fp8": 1.0, "fp4": 0.5}
"""Of weights and of KV as the benchmark counts them; 2 in other formats."""
GRAPHS = 1, 2, 4, 8, 16, 32, 64, 128, 256, 384, 512, 1024, 2048, 4096, 8192
"""``cuda_graph_config.batch_sizes`` of the published tables (perf-overview.md, llm_options.yml)."""


class BenchLimits(NamedTuple):
    """Limits of a step of one attention rank, or of one micro batch of a pipeline."""

    batch: int
    """Sequences."""
    tokens: int
    """Query tokens; a prompt longer than these raises it, since prompts are not cut."""

    @property
    def graphs(self) -> tuple[int, ...]:
        """Captured sizes: those of the page up to the batch limit, and the limit itself, as steps are padded
        (model_engine.py, ``_filter_cuda_graph_batch_sizes``)."""
        largest = min(self.batch, self.tokens)
        return (*(size for size in GRAPHS if size < largest), largest)


def bench_limits(kind: ReplicaKind, prompt: float, output: float, share: float) -> BenchLimits:
    """Return the limits of a server for requests of one length.

    Args:
        kind: its replica.
        prompt, output: tokens of a request.
        share: of free memory that KV takes.
    """
    model, pool = kind.model, kind.pool
    ranks, stages = pool.tensor * pool.data, pool.pipeline
    heads = max(ranks, model.kv_heads)
    token = 2.0 * model.cached_layers * heads * model.head_dim * VALUE_BYTES.get(pool.kv or "", 2.0)
    weights = model_parameters(model) * VALUE_BYTES.get(pool.stored, 2.0)
    room = share * (kind.cluster.device.memory_bytes * ranks * stages - weights)
    requests = max(room, 0.0) / (token * (prompt + output))
    batch = min(requests, MOST_BATCH) / stages
    tokens = min(batch * (1.0 + prompt / output), MOST_TOKENS)
    return BenchLimits(
        max(_rounded(batch, BATCH_GRAIN), LEAST_BATCH),
        max(_rounded(tokens, TOKEN_GRAIN), LEAST_TOKENS, math.ceil(prompt)),
    )


def _rounded(value: float, grains: tuple[tuple[float, int], ...]) -> int:
    """A number rounded up to the multiple of its size."""
    grain = next(grain for below, grain in grains if value < below)
    return grain * math.ceil(value / grain)
