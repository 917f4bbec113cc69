"""Memory of one device of a replica: weights, activations at the token budget, graphs, and KV in the rest.

The engine's memory share bounds KV: a share of the device that includes weights and activations (vLLM,
SGLang), or a share of the memory that they leave free (TensorRT-LLM).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from core.errors import InfeasibleError
from simulator.models import LatentAttention, LayerKind, Model
from simulator.models.model import CACHED
from simulator.ops.counts import encoder_parameters, expert_parameters, layer_counts
from simulator.serving.question.options import EngineOptions
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_times import SlidingKv
from simulator.serving.steps.tower_memory import profiled, tower_bytes_of_stages
from simulator.serving.steps.weight_only import ENDS_BYTES

GATHERED_TOKENS = 32768
"""Tokens of all attention ranks that a kernel of experts takes at once (vLLM's VLLM_FUSED_MOE_CHUNK_SIZE)."""
LATENT_CONTEXT = 65536
"""Cached tokens whose keys and values vLLM's latent attention expands at once for a chunk of a prompt
(vllm/v1/attention/backends/mla/common.py, chunked_prefill_workspace_size)."""
INDEX_SCALE_BYTES = 4.0
"""Scale beside the 8-bit key of sparse attention's indexer (vLLM's DeepseekV32IndexerCache)."""
UNBOUNDED_BLOCKS = 2**31
"""KV blocks of a model whose layers keep states alone: these bound its sequences (`admitted`)."""
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
    """KV of one token of one attention rank, mean of the pipeline stages."""
    block_tokens: int
    states: float = 0.0
    """Memory kept apart for the states of linear layers."""
    outside: float = 0.0
    """Libraries and communication buffers that the engine's share counts."""
    fullest: float = 1.0
    """KV of a token in the pipeline stage that bounds it, over the mean of the stages."""

    @property
    def kv_bytes(self) -> float:
        """Memory left for KV; negative where the weights do not fit."""
        return self.usable - self.weights - self.activations - self.states

    @property
    def kv_blocks(self) -> int:
        """KV blocks of one attention rank."""
        token = self.kv_token * self.fullest
        if token == 0:
            return UNBOUNDED_BLOCKS if self.kv_bytes > 0 else 0
        return max(int(self.kv_bytes // (token * self.block_tokens)), 0)

    @property
    def kv_tokens(self) -> int:
        """KV tokens of one attention rank."""
        return self.kv_blocks * self.block_tokens


def weight_bytes(price: StepPrice) -> float:
    """Return the bytes of weights on one device of the fullest pipeline stage."""
    return float(np.max(stage_weight_bytes(price)))


def stage_weight_bytes(price: StepPrice) -> NDArray[np.float64]:
    """Return the bytes of weights on one device of each pipeline stage, shape (stages,).

    The first stage has the embedding and the vision tower, the last one the output layer, or a copy of the
    embedding. vLLM builds the tower on every stage.
    """
    model, pool, formats = price.model, price.pool, price.weights
    layers = np.zeros(model.layers)
    for kind, count in layer_counts(model).items():
        dense = count.parameters - count.attention - count.experts
        size = (
            count.attention * (formats.attention_bytes or formats.dense_bytes) + dense * formats.dense_bytes
        )
        routed = count.experts * price.expert_padding * formats.expert_bytes / pool.data
        layers[list(model.layer_groups[kind])] = (size + routed) / pool.tensor
        if model.mla and kind.mixer in CACHED:
            layers[list(model.layer_groups[kind])] += _latent_bytes(price, model.mla)
    stages = np.array([layers[first:last].sum() for first, last in stage_layers(model.layers, pool.pipeline)])
    stages[0] += model.embedding_parameters * ENDS_BYTES / pool.tensor
    stages[0] += encoder_parameters(model) * formats.dense_bytes / pool.tensor
    stages += tower_bytes_of_stages(price)
    stages += model.other_parameters * ENDS_BYTES / pool.tensor / pool.pipeline
    output = model.output_parameters * formats.head_bytes
    if pool.pipeline > 1 and model.tied_embeddings:
        output = model.embedding_parameters * ENDS_BYTES
    stages[-1] += (output + model.norm_width * formats.dense_bytes) / pool.tensor
    return stages


def stage_layers(layers: int, stages: int) -> list[tuple[int, int]]:
    """Return first and last layer of each pipeline stage; what is over goes to the stages before the last
    (vllm/distributed/utils.py, get_pp_indices)."""
    each, over = divmod(layers, stages)
    sizes = [each + (stages - 2 >= stage > stages - 2 - over) for stage in range(stages)]
    ends = np.cumsum([0, *sizes])
    return [(int(first), int(last)) for first, last in pairwise(ends)]


def _latent_bytes(price: StepPrice, mla: LatentAttention) -> float:
    """Bytes of one layer of latent attention beyond its share: every rank holds the projections to the
    compressed width and the indexer, and a second copy of the expansions in 16 bits (MLACommonImpl)."""
    model, tensor = price.model, price.pool.tensor
    unsplit = model.hidden * ((mla.q_lora_rank or 0) + mla.kv_lora_rank + mla.qk_rope_head_dim)
    if mla.index_topk:
        queries = (mla.q_lora_rank or model.hidden) * mla.index_heads * mla.index_head_dim
        unsplit += mla.index_share * (queries + model.hidden * (mla.index_head_dim + mla.index_heads))
    expanded = model.heads * mla.kv_lora_rank * (mla.qk_nope_head_dim + mla.v_head_dim)
    size = price.weights.attention_bytes or price.weights.dense_bytes
    return unsplit * (1 - 1 / tensor) * size + ENDS_BYTES * expanded / tensor


def attention_weight_bytes(price: StepPrice) -> float:
    """Return the bytes of attention's weights on one device that has those of all layers."""
    model, formats, groups = price.model, price.weights, price.model.layer_groups
    size, total = formats.attention_bytes or formats.dense_bytes, 0.0
    for kind, count in layer_counts(model).items():
        latents = _latent_bytes(price, model.mla) if model.mla and kind.mixer in CACHED else 0.0
        total += len(groups[kind]) * (count.attention * size / price.pool.tensor + latents)
    return total


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
    size, window = (
        _entry_bytes(model.of_kind(LayerKind(mixer)), tensor, kv) for mixer in ("full", "sliding")
    )
    if model.mla and model.mla.index_topk:
        size += model.mla.index_share * (model.mla.index_head_dim + INDEX_SCALE_BYTES)
    full, windows = model.full_layers, model.layers_of_kind("sliding")
    caching_share = model.cached_layers / max(full + windows, 1)
    return caching_share * (full * size + (sliding if full else 1.0) * windows * window) / pipeline


def _entry_bytes(model: Model, tensor: int, kv: str | None) -> float:
    """KV bytes of one token and layer on one device; the keys of an indexer are in 16 bits."""
    width = model.kv_cache_width if model.mla else model.kv_cache_width / min(tensor, model.kv_heads)
    return model.kv_share * width * KV_BYTES.get(kv or "", 2.0) + 2.0 * model.cache_extra


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
    activations = activation_bytes(price, budget, sequences)
    weights = stage_weight_bytes(price)
    graphs = engine.graph_bytes.value
    fraction = engine.share_of_memory(device, pool, budget) if share is None else share
    outside = engine.library_bytes.value + engine.rank_bytes.value * (pool.devices > 1)
    usable = fraction * device.memory_bytes - outside
    if engine.memory_share_of == "free":
        taken = float(weights.max()) + activations
        usable = taken + fraction * (device.memory_bytes - taken - engine.context_bytes.value)
    elif engine.memory_reserved is not None:
        usable += activations
    elif engine.graphs_counted.value:
        usable -= graphs
    bound, fullest = _bounding_stage(price, usable - activations - weights)
    states = 0.0
    if model.linear and engine.state_pool:
        rest = max(usable - weights[bound] - activations, 0.0)
        states = rest * engine.state_pool.per_kv / (1 + engine.state_pool.per_kv)
    return ReplicaMemory(
        weights=float(weights[bound]),
        activations=activations,
        graphs=graphs,
        usable=usable,
        kv_token=kv_token_bytes(model, pool.tensor, pool.pipeline, pool.kv, sliding_share(price)),
        block_tokens=engine.block_tokens.value if block_tokens is None else block_tokens,
        states=states,
        outside=outside,
        fullest=fullest,
    )


def _bounding_stage(price: StepPrice, room: NDArray[np.float64]) -> tuple[int, float]:
    """The pipeline stage whose memory holds the fewest tokens, and its KV over the mean of the stages."""
    model, stages = price.model, price.pool.pipeline
    if stages == 1:
        return 0, 1.0
    spans = stage_layers(model.layers, stages)
    cached = [sum(model.attention_kind(layer) in CACHED for layer in range(*span)) for span in spans]
    share = np.array(cached) * stages / max(model.cached_layers, 1)
    bound = int(np.argmin(np.where(room > 0, room / np.maximum(share, 1e-9), room)))
    return bound, float(share[bound])


def activation_bytes(price: StepPrice, budget: int, sequences: int) -> float:
    """Peak of what a profiling run of the largest step allocates on one device: layers, then sampling.

    A token holds about four hidden states in 16 bits, and gate, up and their product of a dense MLP. Each of
    its experts adds the inputs (16 and 8 bits), the outputs and as much of its own width.
    The largest pictures are encoded before.
    """
    model, pool = price.model, price.pool
    layers = budget * (8.0 * model.hidden + 6.0 * model.feed_forward * bool(model.dense_layers) / pool.tensor)
    if moe := model.moe:
        tokens = max(min(budget * pool.data, GATHERED_TOKENS), budget)
        inside = moe.feed_forward / max(pool.tensor * pool.data // pool.expert, 1)
        layers += tokens * moe.top_k * (5.0 * (moe.latent or model.hidden) + 6.0 * inside)
    if (mla := model.mla) and price.engine.engine == "vllm":
        expanded = model.heads / pool.tensor * (mla.qk_nope_head_dim + mla.v_head_dim)
        layers += ENDS_BYTES * LATENT_CONTEXT * (expanded + model.kv_cache_width)
    sampler = price.engine.sampler_bytes.value * min(sequences, budget) * model.vocabulary
    encoded = profiled(price, budget)
    return max(encoded.peak, max(layers, sampler) + encoded.outputs)


def state_bytes(price: StepPrice) -> float:
    """Return the bytes of the states of one sequence on one device."""
    model = price.model
    if model.linear is None:
        return 0.0
    layers = model.layers_of_kind("linear") / price.pool.pipeline
    return layers * model.linear.state_bytes / price.pool.tensor


def admitted(price: StepPrice, footprint: ReplicaMemory, options: EngineOptions) -> int | None:
    """Return the sequences of an attention rank that memory of states admits; None: any number.

    It is the engine's pool of states; without caches of keys, all that weights and activations leave.
    """
    if footprint.kv_token == 0:
        return max(int(footprint.kv_bytes // max(state_bytes(price), 1.0)), 1)
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
