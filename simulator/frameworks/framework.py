"""Properties of a training framework that a plan does not state.

Which kernels it fuses, how wide it accumulates and reduces gradients, what it overlaps by default, how
long its host code takes to launch a kernel, what it allocates beside the model. Each constant belongs
to a framework, never to a case, and names its source.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from hwmodels.errors import InputError
from hwmodels.loading import Catalogue, build
from hwmodels.sources import Sourced
from simulator.plan import Plan


class Framework(Sourced):
    """Properties of a training framework that change the time or memory of a step.

    ``origins`` holds the source of each number, ``source`` those of the other facts.
    """

    UNSOURCED = frozenset({"defaults"})

    name: str
    title: str = Field(description="what it is, with versions")
    attention: Literal["flash", "flash-2", "flash-1", "flash-1-triton", "unfused"] = Field(
        "flash",
        description="attention kernel; flash "
        "is the fastest that the device has (FlashAttention-3 or cuDNN on Hopper)",
    )
    selective: Literal["core", "all-but-projections", "every-other-product", "modules"] = Field(
        "core",
        description="what selective recomputation repeats: the attention core (Korthikanti et al. 2022), all "
        "but the projections around it, all but attention and every other product, or named modules",
    )
    modules: list[
        Literal["core_attn", "mla_up_proj", "layernorm", "mlp", "mlp_act", "moe_act", "shared_experts", "moe"]
    ] = Field([], description="modules that selective recomputation repeats, where it names them")
    product_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="speed of matrix products over that of the library which the device was calibrated with",
    )
    elementwise: Literal["fused", "eager"] = Field(
        "fused", description="whether bias, dropout, residual, activation and rotary kernels are fused"
    )
    norm: Literal["fused", "casts", "composite"] = Field(
        "fused",
        description="norm kernel: one kernel, one over input that another casts to 32 bits, or RMSNorm as a "
        "chain of torch kernels over 32-bit values",
    )
    repeats_norms: bool = Field(
        False, description="norms run again before the backward pass where the plan recomputes nothing"
    )
    dropout: bool = Field(False, description="dropout after attention and MLP by default")
    gradient_bytes: Literal[2, 4] = Field(4, description="bytes of one accumulated gradient")
    reduce_bytes: Literal[2, 4] = Field(4, description="bytes of one gradient on the wire")
    fused_latent_rope: bool = Field(
        True,
        description="one kernel rotates the part of latent heads that has positions and joins the parts; a "
        "chain of torch kernels in Megatron Core before 0.13",
    )
    rotary: Literal["", "halves"] = Field(
        "",
        description="rotary embedding as torch kernels over both halves of each head; empty: as "
        "``elementwise`` says",
    )
    gated_activation: Literal["", "eager"] = Field(
        "",
        description="activation of a gated MLP as two torch kernels, activation and product; empty: as "
        "``elementwise`` says",
    )
    swaps_batch: bool = Field(
        False,
        description="fused attention reads copies of query, key and value with the batch before the "
        "sequence, and its output is copied back",
    )
    splits_projection: bool = Field(
        False,
        description="query, key and value come out of one projection and are copied apart after rotation",
    )
    stacks_activations: bool = Field(
        False,
        description="what forward keeps for backward is copied into a stack over the layers, and out again",
    )
    grouped_launches: Literal["one", "per-expert", "fused-mlp"] = Field(
        "per-expert",
        description="whether the products of all experts are one kernel or one kernel each, or one with "
        "activation and casts inside (fused-mlp)",
    )
    clamps_apart: bool = Field(
        False, description="limits of an activation's inputs are kernels of their own, before the fused one"
    )
    skips_blocks: bool = Field(
        True, description="the attention kernel of a sliding window leaves out blocks that are masked"
    )
    fused_router: bool = Field(True, description="the choice of experts and its statistics are fused kernels")
    reads_token_counts: bool = Field(
        True, description="the host waits in each layer for the tokens of each expert, unless they are fixed"
    )
    fixed_capacity: bool = Field(
        False, description="experts drop tokens beyond a capacity and pad to it: their numbers are known"
    )
    dispatcher: Literal["all-to-all", "flex", "flex-between-nodes"] = Field(
        "all-to-all",
        description="what sends tokens to experts: an all-to-all with one copy an expert, DeepEP or HybridEP "
        "(Megatron's flex dispatcher) with one copy a rank or node, or these only where experts span nodes",
    )
    dispatcher_library: str = Field(
        "hybridep",
        description="library behind the flex dispatcher, whose rate the calibration of links or fabric may "
        "state: hybridep, deepep, uccl, nvshmem",
    )
    graphs: Literal["none", "slow-hosts", "router", "attention", "layer", "step"] = Field(
        "none",
        description="kernels that are replayed from CUDA graphs: none; router, dispatch preparation and "
        "shared experts of layers with experts (router); attention too (attention), or these only on hosts "
        "that launch slowly, as Grace (slow-hosts); whole dense layers too (layer); all (step)",
    )
    fused_accumulation: bool = Field(
        True, description="weight gradients accumulate inside the matrix product"
    )
    casts_gradients: bool = Field(
        False,
        description="separate kernels cast each gradient to 32 bits and add it, in every micro batch",
    )
    clears_working_gradients: bool = Field(
        False,
        description="where gradients are cast, autograd's own are cleared and added to in every micro batch, "
        "instead of left to be freed",
    )
    adds_first_gradient: bool = Field(
        True,
        description="whether the first gradient of a step is added to zeroes; autograd keeps it as it comes "
        "where the old one was set to none",
    )
    gradient_passes: float = Field(
        0.0,
        ge=0,
        le=1e3,
        description="reads and writes of each gradient while it is copied into and out of the buckets that "
        "are reduced, where it does not live in them; with those of each gathered parameter, if it is copied",
    )
    cast_passes: dict[Literal["fp8", "mxfp8", "nvfp4"], Annotated[float, Field(ge=0, le=1e3)]] = Field(
        {"fp8": 2.0, "mxfp8": 2.0, "nvfp4": 2.5},
        description="reads and writes, of 2 bytes each, to quantise one element of a product's operand by "
        "rows and by columns: with one scale a tensor known from earlier steps, with one a block, and with "
        "both a block's and a tensor's, for which it is read twice",
    )
    cast_launches: dict[Literal["fp8", "mxfp8", "nvfp4"], Annotated[float, Field(ge=1, le=100)]] = Field(
        {"fp8": 1.0, "mxfp8": 1.0, "nvfp4": 2.0},
        description="kernels that quantise one operand of a product, or one expert's rows of it",
    )
    shared_casts: list[Literal["fp8", "mxfp8", "nvfp4"]] = Field(
        ["fp8"], description="formats in which one kernel quantises the rows of all experts of a device"
    )
    swizzled_scales: Literal["none", "one", "per-expert"] = Field(
        "none",
        description="kernels that bring scales of blocks into the order that products read: none, one for "
        "each operand of a call, or one for each expert's",
    )
    casts_weights: bool = Field(False, description="weights are quantised for every pass, not once a step")
    gather_bytes: Literal[2, 4] = Field(2, description="bytes of one gathered parameter on the wire")
    scatter_from_zero: int = Field(
        1,
        ge=0,
        le=3,
        description="lowest ZeRO stage whose gradients are reduce-scattered instead of all-reduced",
    )
    trains_mtp: bool = Field(
        False, description="whether it trains the multi-token prediction layers that a model has"
    )
    cross_entropy: Literal["fused", "fused-32", "native", "eager", "torch", "torch-held", "chunked"] = Field(
        "eager",
        description="loss kernel; fused-32 reads logits cast to 32 bits, eager is Megatron-LM's over the "
        "ranks' shards of the vocabulary, native the same in compiled pieces, torch is log-softmax and "
        "negative log-likelihood, torch-held the same where the caller keeps the logits during the backward "
        "pass, chunked the same over pieces of the sequence with the output layer inside",
    )
    metric_passes: float = Field(
        0.0,
        ge=0,
        le=1e3,
        description="reads and writes of each logit, of 2 bytes each, by metrics that the framework computes "
        "of every training micro batch beside the loss",
    )
    host_seconds_per_kernel: float | None = Field(
        None,
        ge=0,
        le=1,
        description="host time to launch one kernel from Python; what the device's calibration measured of "
        "eager torch where not given",
    )
    launches_ahead: bool = Field(
        True,
        description="whether the host launches kernels while the device still runs others; with "
        "CUDA_LAUNCH_BLOCKING=1 it waits for each kernel",
    )
    fetch_seconds: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="host time to fetch and broadcast a micro batch before its forward pass, while the "
        "device waits",
    )
    mask_seconds: float = Field(
        0.0,
        ge=0,
        le=1,
        description="host time for one element of the attention mask (sequence x sequence) that the first "
        "and the last stage of a pipeline build on the CPU for every micro batch, while the device waits",
    )
    exchange_seconds: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="host time of one transfer between pipeline stages, where the host waits for the device "
        "after each",
    )
    optimizer_bytes_per_parameter: float = Field(
        gt=0,
        le=1e3,
        description="memory traffic of unscaling, clipping, update "
        "and casting, per parameter that a rank owns",
    )
    gathers_by_broadcast: bool = Field(
        False, description="updated parameters are sent by one broadcast a rank instead of one all-gather"
    )
    gathers_a_layer: int = Field(
        1,
        ge=1,
        le=1000,
        description="collectives that gather one layer under full sharding: 1 where "
        "a layer is wrapped as a whole, one a submodule elsewhere",
    )
    host_seconds_per_rank: float = Field(
        0.0,
        ge=0,
        le=1,
        description="host time under full sharding for each rank that shares a layer's parameters, in every "
        "micro batch, while the device waits: loops over the ranks around gathers and reductions",
    )
    gathers_again: bool = Field(False, description="full recomputation gathers the parameters once more")
    reuse_parameters: float = Field(
        0.0,
        ge=0,
        le=1e18,
        description="parameters in use between two uses of a weight up to which it is kept instead of "
        "gathered once more",
    )
    prefetch_parameters: float = Field(
        1e18,
        gt=0,
        description="parameters that may be gathered ahead; the gathers of a larger layer are not hidden",
    )
    context_bytes: float = Field(ge=0, le=1e13, description="memory of the driver context and libraries")
    buffer_bytes_per_group: float = Field(
        ge=0, le=1e13, description="communication buffers of one process group"
    )
    bucket_parameters: float = Field(
        4e7,
        gt=0,
        description="parameters of a bucket of gradients that is reduced at once, where layers are not; "
        "Megatron-LM's --ddp-bucket-size by default, DDP's is of the same order",
    )
    bucket_bytes: float = Field(
        0.0, ge=0, le=1e13, description="flat buckets for reducing and gathering, where they are extra memory"
    )
    separate_master: bool = Field(
        True,
        description="a 32-bit master copy beside the working parameters; FSDP keeps only "
        "the sharded 32-bit parameter",
    )
    optimizer_gradient_bytes: float = Field(
        0.0,
        ge=0,
        le=1e3,
        description="bytes of gradients that the optimizer holds beside "
        "the accumulated ones, per parameter that a rank owns",
    )
    working_gradient_bytes: float = Field(
        0.0,
        ge=0,
        le=1e3,
        description="bytes of a 16-bit gradient that stays beside a 32-bit accumulated one, per parameter",
    )
    fragmentation: float = Field(
        ge=1, le=10, description="reserved over allocated memory of the caching allocator"
    )
    defaults: dict[str, Any] = Field(
        default_factory=dict, description="plan fields the framework sets when a plan does not"
    )
    source: dict[str, str] = Field(
        description="where the facts that are no numbers come from; a number may name its source itself"
    )

    @field_validator("defaults")
    @classmethod
    def _plan_fields(cls, defaults: dict[str, Any]) -> dict[str, Any]:
        try:
            build(Plan, {**defaults, "tensor": 2}, "")  # sequence_parallel alone would be refused
        except InputError as error:
            raise ValueError(error.problem) from None
        return defaults


frameworks = Catalogue("framework", Path(__file__).parent, Framework)
