"""Input of op lists: one rank's view of a batch."""

from __future__ import annotations

from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.records import record
from simulator.models import Model
from simulator.ops.batch import Batch

Array = NDArray[np.floating]

Dispatcher = Literal["all-to-all", "flex", "flex-between-nodes", "replicated"]

STREAMED = 0.55
"""``Product.in_turn`` of experts multiplied one by one over four streams (Transformer Engine,
cublaslt_gemm.cu: multi_stream_cublas_gemm): 0.48 and 0.61 on H100, where 8 and 16 experts with 32,768 tokens
take 2,048 x 768 weights at 628 and 554 TFLOP/s, beside 676 and 668 at once and 583 and 499 one after the
other by the calibration (Transformer Engine PR 2045, version 2.7; one kernel: 651 and 637)."""


@record()
class Shard:
    """How a layer is sharded over ranks; arrays broadcast to shape (cases,).

    Args:
        tensor: tensor-parallel ranks.
        context: context-parallel ranks, over which every sequence is sharded.
        expert: ranks over which experts are spread.
        expert_tensor: ranks over which the width of one expert is sharded.
        sequence_parallel: whether norms are sharded over the tensor-parallel ranks.
        context_algorithm: index into ``simulator.plan.Choice["context_algorithm"]``.
        context_heads: context-parallel ranks that split the heads of a sequence; the others split its tokens.
        expert_load: routed tokens of the busiest expert-parallel rank over the mean.
    """

    tensor: ArrayLike = 1
    context: ArrayLike = 1
    expert: ArrayLike = 1
    expert_tensor: ArrayLike = 1
    sequence_parallel: ArrayLike = False
    context_algorithm: ArrayLike = 0
    context_heads: ArrayLike = 1
    expert_load: float = 1.0


@record()
class Formats:
    """Number formats.

    Args:
        linear: operands of linear layers.
        core: attention, router and output layer.
        output: output layer, where it differs from ``core``; empty: it does not.
        kv: the KV cache, where it differs from ``core``.
        width: bytes of an activation element.
        operand_width: bytes of an element of the linear layers' input, as the all-gather moves it.
        gradient_width: the same of their output's gradient.
        partial_width: bytes of an element of partial results that tensor-parallel ranks reduce; an array
            where cases differ.
        kept_width: bytes of an element of the linear layers' inputs saved for the backward pass.
    """

    linear: str = "bf16"
    core: str = "bf16"
    output: str = ""
    kv: str | None = None
    width: float = 2.0
    operand_width: float = 2.0
    gradient_width: float = 2.0
    partial_width: float | Array = 2.0
    kept_width: float = 2.0


@record()
class Implementation:
    """Which kernels a framework or a serving engine runs for an operation.

    Args:
        attention: fused (flash, or an older version) or unfused.
        elementwise: fused kernels between products, or one kernel per operation.
        norm: one kernel, one over input cast to 32 bits, or RMSNorm as a chain of kernels over 32-bit values.
        softmax: kernels of unfused attention's softmax (``elementwise.SOFTMAX_KERNELS``), or empty: those of
            ``elementwise``.
        one_hot_embedding: whether tokens are looked up by a product.
        whole_ends: whether every tensor-parallel rank computes the whole ends of the model.
        joins_residual: the residual sum is part of the norm that follows.
        fused_latent_rope: whether one kernel rotates latent attention's heads and joins their parts.
        joined_latents: whether one product computes the latents of queries and of keys (vLLM deepseek_v2.py
            fused_qkv_a_proj, SGLang fused_qkv_a_proj_with_mqa, TensorRT-LLM kv_a_proj_with_mqa).
        rotary: kernels of the rotary embedding (``elementwise.ROTARY``); empty: those of ``elementwise``.
        gated_activation: kernels of a gated MLP's activation (``elementwise.GATED``); empty: those of
            ``elementwise``.
        swaps_batch: whether fused attention reads copies with the batch before the sequence.
        scans_batch_first: whether scans read copies with the batch before the sequence.
        gathers_by_product: whether each product sharded by columns gathers its own input, and a rank has all
            logits.
        splits_projection: query, key and value are copied out of the projection's output after RoPE.
        separate_products: whether query, key and value are products of their own, as are gate and up
            projection.
        joins_sums: whether a compiler joins sums of gradients and of experts' outputs to their neighbours.
        dropout: whether dropout kernels run.
        appends: whether new keys and values go into a cache.
        absorbs: latent attention decodes in the latent space (MLA with absorbed projections).
        cast_passes: reads and writes of 2 bytes to quantise an element of an operand in a separate kernel; 0
            where the product's call quantises it.
        cast_launches: kernels that quantise one operand; with current scaling, further kernels clear, find
            and convert its largest value first.
        casts_by_expert: whether a cast kernel quantises the rows of one expert, not of all.
        casts_weights: whether weights are quantised in every pass, by rows forward, by columns backward.
        rescale_passes: reads and writes of 2 bytes to multiply an element of a backward product's result by
            its scales; 0 where the product does.
        swizzles: whether kernels reorder block scales for the products: one kernel per operand of a call, or
            one per expert's operand.
        accumulated_bytes: bytes moved per weight to add its gradient in a separate kernel; 0: the product
            accumulates.
        accumulation_launches: kernels that add a weight's gradient, where it is added apart.
        accumulated_table_bytes: the same for the embedding's gradient, which is not a product.
        experts: products of experts as one kernel, one kernel per expert, one kernel with activation and
            casts inside (fused-mlp), or a fused layer with the routing kernels.
        clamps_apart: whether separate kernels clamp an activation's inputs.
        indexes_copies: whether torch's indexing kernels permute and pad copies of tokens.
        weighs_apart: whether separate 32-bit kernels weigh the experts' outputs by the scores.
        loop_launches: kernels launched for each expert beside its products, forward.
        loop_backward_launches: the same, backward.
        skips_blocks: whether the sliding-window kernel skips masked blocks.
        narrow_activation: whether a gated activation keeps its inputs in 8 bits.
        fixed_capacity: whether experts drop tokens beyond a capacity and pad to it.
        fused_router: whether the choice of experts and its statistics are fused kernels.
        dispatcher: library that sends tokens to experts; ``replicated`` where every rank holds all of them.
        exchange_share: speed of an all-to-all over the benchmarks', among three nodes and more.
        flex_permutes: whether the call of that library returns tokens in the experts' order (HybridEP).
        flex_domain: ranks, and speed of DeepEP or HybridEP among them in a domain over an NCCL all-to-all.
        flex_combined_per_s: copies that a rank combines a second inside a domain; None: unlimited.
        flex_network: the same ratio between domains, for the bytes of all copies.
        flex_start_s: seconds of a dispatch between domains beside its bytes.
        flex_copies_per_s: copies to other domains that a rank sends a second; None: unlimited.
        domain: devices of the innermost links, as dispatchers see them.
        node: devices of a node.
        mesh: whether each pair of a node's devices has a link of its own.
        linear_context: how context-parallel ranks exchange linear attention (``linear_context.SENDS``).
        loss: kernels of the loss (``elementwise.CROSS_ENTROPY``); empty: none.
        metric_passes: passes over the logits, of 2 bytes each, that metrics of a training step take.
    """

    attention: Literal[
        "flash", "flash-mx8", "flash-3", "flash-torch", "flash-2", "flash-1", "flash-1-triton", "unfused"
    ] = "flash"
    elementwise: Literal["fused", "eager"] = "fused"
    norm: Literal["fused", "casts", "composite"] = "fused"
    softmax: Literal["", "reductions", "wide"] = ""
    one_hot_embedding: bool = False
    whole_ends: bool = False
    joins_residual: bool = False
    fused_latent_rope: bool = True
    joined_latents: bool = False
    rotary: Literal["", "halves"] = ""
    gated_activation: Literal["", "eager"] = ""
    swaps_batch: bool = False
    scans_batch_first: bool = False
    gathers_by_product: bool = False
    splits_projection: bool = False
    separate_products: bool = False
    joins_sums: bool = False
    dropout: bool = False
    appends: bool = False
    absorbs: bool = True
    cast_passes: float = 0.0
    cast_launches: float = 1.0
    casts_by_expert: bool = False
    casts_weights: bool = False
    rescale_passes: float = 0.0
    swizzles: Literal["none", "one", "per-expert"] = "none"
    accumulated_bytes: float = 0.0
    accumulation_launches: int = 1
    accumulated_table_bytes: float = 0.0
    experts: Literal["one", "per-expert", "fused-mlp", "fused-layer"] = "one"
    clamps_apart: bool = False
    indexes_copies: bool = False
    weighs_apart: bool = False
    loop_launches: float = 0.0
    loop_backward_launches: float = 0.0
    skips_blocks: bool = True
    narrow_activation: bool = False
    fixed_capacity: bool = False
    fused_router: bool = True
    dispatcher: Dispatcher = "all-to-all"
    exchange_share: float = 1.0
    flex_permutes: bool = False
    flex_domain: tuple[tuple[float, float], ...] = ((2.0, 1.0),)
    flex_combined_per_s: float | None = None
    flex_network: float = 1.0
    flex_start_s: float = 0.0
    flex_copies_per_s: float | None = None
    domain: int = 8
    node: int = 8
    mesh: bool = False
    linear_context: str = "heads"
    loss: str = ""
    metric_passes: float = 0.0

    @property
    def in_turn(self) -> float:
        """``Product.in_turn`` of experts."""
        if self.experts != "per-expert":
            return 0.0
        return 1.0 if self.loop_launches else STREAMED


SERVING = Implementation(
    joins_residual=True, appends=True, experts="fused-layer", dispatcher="replicated", joined_latents=True
)
"""Kernels that current serving engines share."""


@record()
class Rank:
    """A batch of a model as one rank of a shard computes it."""

    model: Model
    batch: Batch
    shard: Shard = Shard()
    formats: Formats = Formats()
    how: Implementation = Implementation()

    @cached_property
    def tensor(self) -> Array:
        """Tensor-parallel ranks, shape (cases,)."""
        return np.asarray(self.shard.tensor, dtype=np.float64)

    @cached_property
    def context(self) -> Array:
        """Context-parallel ranks, shape (cases,)."""
        return np.asarray(self.shard.context, dtype=np.float64)

    @cached_property
    def context_heads(self) -> Array:
        """Context-parallel ranks that split heads, shape (cases,)."""
        return np.asarray(self.shard.context_heads, dtype=np.float64)

    @cached_property
    def expert(self) -> Array:
        """Expert-parallel ranks, shape (cases,)."""
        return np.asarray(self.shard.expert, dtype=np.float64)

    @cached_property
    def expert_tensor(self) -> Array:
        """Tensor-parallel ranks of one expert, shape (cases,)."""
        return np.asarray(self.shard.expert_tensor, dtype=np.float64)

    @cached_property
    def load(self) -> Array:
        """Routed tokens of this rank over the mean, shape (cases,): this rank is the busiest.

        Ranks without expert parallelism hold all experts, and a capacity drops what exceeds it.
        """
        return np.where((self.expert > 1) & (not self.how.fixed_capacity), self.shard.expert_load, 1.0)

    @cached_property
    def spread(self) -> Array:
        """Ranks over which the tokens of norms are sharded, shape (cases,)."""
        return np.where(self.shard.sequence_parallel, self.tensor, 1.0)

    @cached_property
    def tokens(self) -> Array:
        """Tokens that pass the linear layers of one rank, shape (cases,)."""
        return self.batch.tokens / self.context

    @cached_property
    def heads(self) -> Array:
        """Query heads of one rank, shape (cases,)."""
        return self.model.heads / self.tensor

    @cached_property
    def kv_heads(self) -> Array:
        """Key-value heads of one rank, shape (cases,); copied where there are fewer than ranks."""
        return np.maximum(self.model.kv_heads / self.tensor, 1.0)

    @property
    def width(self) -> float:
        """Bytes of an activation element."""
        return self.formats.width
