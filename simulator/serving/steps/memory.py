"""Memory of one device of a replica: weights, activations at the token budget, graphs, and KV in the rest.

The engine's memory share bounds KV: a share of the device that includes weights and activations (vLLM,
SGLang), or a share of the memory that they leave free (TensorRT-LLM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from core.errors import InfeasibleError
from simulator.models import Model
from simulator.ops.counts import expert_parameters, layer_counts
from simulator.serving.question.options import EngineOptions
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_times import SlidingKv
from simulator.serving.steps.weight_only import ENDS_BYTES

LIBRARY_BYTES = 0.25e9
"""Share of the engine's memory that its profiling run finds occupied by non-tensors (vLLM 0.15 on H100: KV
blocks of Llama-2-7B, Qwen2.5-7B and Mistral-Nemo)."""
SAMPLER_BYTES = 40.0
"""Peak of sampling, per sequence and word: logits in 32 bits, probabilities, their sort with indices."""
INDEX_SCALE_BYTES = 4.0
"""Scale beside the 8-bit key of sparse attention's indexer (vLLM's DeepseekV32IndexerCache)."""
KV_BYTES = {"fp8": 1.0, "int8": 1.0, "fp4": 0.5625, "int4": 0.5625, "fp32": 4.0}


@dataclass(frozen=True)
class ReplicaMemory:
    """Bytes on one device, and the number of KV blocks that fit."""

    weights: float
    activations: float
    graphs: float
    usable: float
    """Memory that the engine may fill, including KV."""
    kv_token: float
    """KV of one token of one attention rank, on this device."""
    block_tokens: int
    states: float = 0.0
    """Memory kept apart for the states of linear layers."""

    @property
    def kv_bytes(self) -> float:
        """Memory left for KV; negative where the weights do not fit."""
        return self.usable - self.weights - self.activations - self.states

    @property
    def kv_blocks(self) -> int:
        """KV blocks of one attention rank."""
        return max(int(self.kv_bytes // (self.kv_token * self.block_tokens)), 0)

    @property
    def kv_tokens(self) -> int:
        """KV tokens of one attention rank."""
        return self.kv_blocks * self.block_tokens


def weight_bytes(price: StepPrice) -> float:
    """Return the bytes of weights on one device of a replica."""
    model, pool, formats = price.model, price.pool, price.weights
    routed = model.moe_layers * model.moe.experts * expert_parameters(model) if model.moe else 0
    embedding, output = model.embedding_parameters, model.output_parameters
    ranks = pool.tensor * pool.data
    stages = pool.pipeline
    experts = routed * price.expert_padding * formats.expert_bytes / ranks
    ends = embedding * ENDS_BYTES + output * formats.head_bytes
    return (dense_weight_bytes(price) / pool.tensor + experts) / stages + ends / pool.tensor / min(stages, 2)


def dense_weight_bytes(price: StepPrice) -> float:
    """Return the bytes of all weights but embedding, output layer and routed experts."""
    model, formats = price.model, price.weights
    groups, counts = model.layer_groups, layer_counts(model)
    attention = sum(len(groups[kind]) * count.attention for kind, count in counts.items())
    listed = sum(len(groups[kind]) * count.parameters for kind, count in counts.items())
    routed = model.moe_layers * model.moe.experts * expert_parameters(model) if model.moe else 0
    others = listed - attention - routed + model.norm_width
    return attention * (formats.attention_bytes or formats.dense_bytes) + others * formats.dense_bytes


def kv_token_bytes(model: Model, tensor: int, pipeline: int, kv: str | None, sliding: float = 1.0) -> float:
    """Return KV bytes of one token on one device.

    Key-value heads are copied where there are fewer than ranks; each rank holds the whole latent cache.

    Args:
        model: its layers.
        tensor, pipeline: degrees.
        kv: number format; None: 16 bits.
        sliding: tokens of sliding layers for each of full ones, where a model has both.
    """
    width = model.kv_cache_width if model.mla else model.kv_cache_width / min(tensor, model.kv_heads)
    size = width * KV_BYTES.get(kv or "", 2.0)
    if model.mla and model.mla.index_topk:
        size += model.mla.index_head_dim + INDEX_SCALE_BYTES
    full, windows = model.layers_of_kind("full"), model.layers_of_kind("sliding")
    return (full + (sliding if full else 1.0) * windows) / pipeline * size


def window_of(price: StepPrice) -> SlidingKv:
    """The window of a replica's sequences; prefill and decode pools send KV of all tokens."""
    model = price.model
    full, windows = model.layers_of_kind("full"), model.layers_of_kind("sliding")
    if sliding_share(price) or not (full and windows and model.sliding_window):
        return SlidingKv()
    return SlidingKv(model.sliding_window, -(-windows // full))


def sliding_share(price: StepPrice) -> float:
    """KV of sliding layers for each token of full ones. vLLM's hybrid cache is off with a KV connector."""
    share = price.engine.sliding_kv.value
    return share if price.pool.role == "mixed" else share or 1.0


def memory(
    price: StepPrice, budget: int, sequences: int, share: float | None = None, block_tokens: int | None = None
) -> ReplicaMemory:
    """Return the memory of one device.

    Args:
        price: step price of the replica.
        budget: maximum query tokens of a step.
        sequences: maximum sequences of a step.
        share: memory share that the engine may fill; by default the engine's.
        block_tokens: tokens of a KV block; by default the engine's.
    """
    model, pool, engine = price.model, price.pool, price.engine
    device = price.cluster.device
    width = model.feed_forward
    if model.moe:
        width = max(model.moe.top_k * model.moe.feed_forward, model.feed_forward)
    activations = 2.0 * budget * (4 * model.hidden + 3 * width / pool.tensor)
    activations += SAMPLER_BYTES * min(sequences, 256) * model.vocabulary / (2 if pool.tensor > 1 else 1)
    weights = weight_bytes(price)
    graphs = engine.graph_bytes.value
    fraction = engine.share_of_memory(device, pool, budget) if share is None else share
    usable = fraction * device.memory_bytes - LIBRARY_BYTES
    if engine.memory_share_of == "free":
        taken = weights + activations + engine.context_bytes.value
        usable = weights + activations + fraction * (device.memory_bytes - taken)
    elif engine.memory_reserved is not None:
        usable += activations
    elif engine.graphs_counted.value:
        usable -= graphs
    states = 0.0
    if model.linear and engine.state_pool:
        rest = max(usable - weights - activations, 0.0)
        states = rest * engine.state_pool.per_kv / (1 + engine.state_pool.per_kv)
    return ReplicaMemory(
        weights=weights,
        activations=activations,
        graphs=graphs,
        usable=usable,
        kv_token=kv_token_bytes(model, pool.tensor, pool.pipeline, pool.kv, sliding_share(price)),
        block_tokens=engine.block_tokens.value if block_tokens is None else block_tokens,
        states=states,
    )


def state_bytes(price: StepPrice) -> float:
    """Return the bytes of the states of one sequence on one device."""
    model = price.model
    if model.linear is None:
        return 0.0
    layers = model.layers_of_kind("linear") / price.pool.pipeline
    return layers * model.linear.state_bytes / price.pool.tensor


def admitted(price: StepPrice, footprint: ReplicaMemory, options: EngineOptions) -> int | None:
    """Return the sequences of an attention rank that the engine's pool of states admits; None: any number."""
    pool = price.engine.state_pool
    if pool is None or not footprint.states:
        return None
    slots = pool.slots if options.prefix_caching else 1
    if options.prefix_caching and (options.state_buffers or price.pool.speculation is not None):
        slots += pool.buffers + (options.asynchronous and pool.buffers > 0)
    return max(int(footprint.states // state_bytes(price)) // slots, 1)


def check_fits(price: StepPrice, footprint: ReplicaMemory) -> None:
    """Refuse a replica without room for one KV block.

    Raises:
        InfeasibleError: says by how much, and which degree or format would fit.
    """
    if footprint.kv_blocks >= 1:
        return
    weights, usable = footprint.weights, footprint.usable
    short = weights + footprint.activations + footprint.kv_token * footprint.block_tokens - usable
    ranks = price.pool.devices
    room = usable - footprint.activations
    helps = ["a device with more memory"]
    if room > 0:
        helps = [f"{ranks * 2 ** max(math.ceil(math.log2(weights / room)), 1)} devices a replica"]
        if price.pool.weights in ("bf16", "fp16") and weights / 2 < room:
            helps.append("fp8 weights")
    raise InfeasibleError(
        f"{price.model.name} does not fit {ranks} x {price.cluster.device.name}: {short / 2**30:.1f} GiB "
        f"too much a device (weights {weights / 2**30:.1f} GiB of {usable / 2**30:.1f} usable); "
        f"{' or '.join(helps)} would help, or `stream`: reading {short / 2**30:.1f} GiB from the host takes "
        f"{short * ranks / price.cluster.rates.copies(ranks):.2g} s a step"
    )
