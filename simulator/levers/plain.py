"""Levers that only a release and a plan choose: a field, its default, and at most words for it.

No search varies them, and code reads them as ``setting.choices.NAME``.
"""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, choice

Attention = Literal[
    "flash", "flash-mx8", "flash-3", "flash-torch", "flash-2", "flash-1", "flash-1-triton", "unfused"
]
Elementwise = Literal["fused", "eager"]
ElementBytes = Literal[2, 4]
States = Literal["mixed", "moments-16", "bf16", "8-bit", "paged-8-bit"]
Rotary = Literal["", "halves"]
Scaling = Literal["", "delayed", "current"]
SwizzledScales = Literal["none", "one", "per-expert"]
CrossEntropy = Literal[
    "fused", "fused-32", "native", "eager", "torch", "torch-held", "torch-16", "chunked", "log-probabilities"
]
LinearContext = Literal["heads", "lasp", "lasp-2", "zeco"]


class StatedPlain(Partial):
    """As a plan states them."""

    attention: Attention | None = Field(
        default=None,
        description="attention kernel; flash is the one that Transformer Engine and torch take (cuDNN on "
        "Hopper, the fastest elsewhere), flash-mx8 cuDNN's over queries, keys and values in MXFP8 "
        "(fp8_dot_product_attention), flash-3 FlashAttention-3, which runs on Hopper alone, flash-torch "
        "what torchtitan takes: FlashAttention-2, and cuDNN's kernel on Blackwell",
    )
    elementwise: Elementwise | None = Field(
        default=None, description="whether bias, dropout, residual, activation and rotary kernels are fused"
    )
    dropout: bool | None = Field(
        default=None, description="dropout after attention and MLP, where the workload states none"
    )
    gradient_bytes: ElementBytes | None = Field(default=None, description="bytes of one accumulated gradient")
    reduce_bytes: ElementBytes | None = Field(default=None, description="bytes of one gradient on the wire")
    states: States | None = Field(
        default=None,
        description="formats of the state: mixed has parameters or a copy of them, and Adam's moments, in 32 "
        "bits; moments-16 the same with moments of 16 bits (Megatron Core's precision-aware optimizer with "
        "exp_avg_dtype bf16); bf16 has parameters, gradients and moments in 16 bits only; 8-bit the same "
        "with moments of 8 bits (Dettmers et al. 2021); paged-8-bit the same with moments that the driver "
        "pages to the host where the device is full (Dettmers et al. 2023); moving pages takes no time here",
    )
    unsharded_gradients: bool | None = Field(
        default=None,
        description="where gradients are sharded, those of all micro batches but the last are added up "
        "unsharded, as they are reduced, and reduced once a step (FSDP2: set_requires_gradient_sync)",
    )
    update_in_backward: bool | None = Field(
        default=None,
        description="each parameter is updated as soon as its gradient is there, which is then freed "
        "(torchtune: optimizer_in_bwd); with one micro batch a step",
    )
    fused_latent_rope: bool | None = Field(
        default=None,
        description="one kernel rotates the part of latent heads that has positions and joins the parts; a "
        "chain of torch kernels in Megatron Core before 0.13",
    )
    rotary: Rotary | None = Field(
        default=None,
        description="rotary embedding as torch kernels over both halves of each head; empty: as "
        "``elementwise`` says",
    )
    skips_blocks: bool | None = Field(
        default=None, description="the attention kernel of a sliding window leaves out blocks that are masked"
    )
    fused_router: bool | None = Field(
        default=None, description="the choice of experts and its statistics are fused kernels"
    )
    fixed_capacity: bool | None = Field(
        default=None,
        description="experts drop tokens beyond a capacity and pad to it: their numbers are known",
    )
    dispatcher_library: str | None = Field(
        default=None,
        description="library behind the flex dispatcher, whose rate the calibration of links or fabric may "
        "state: hybridep, deepep, uccl, nvshmem",
    )
    fused_accumulation: bool | None = Field(
        default=None, description="weight gradients accumulate inside the matrix product"
    )
    scaling: Literal["delayed", "current"] | None = Field(
        default=None,
        description="scales of tensors in fp8: from the largest values of earlier steps (delayed), or from "
        "each tensor's own (current), which reads it once more and loses less",
    )
    narrow_parameters: bool | None = Field(
        default=None,
        description="weights of 8-bit and 4-bit products are kept in that format alone, without 16-bit "
        "weights beside them (Megatron Core: fp8_param_gather, fp4_param_gather)",
    )
    narrow_output: bool | None = Field(
        default=None,
        description="the output layer runs in the format of the linear layers, not in 16 bits (Megatron "
        "Core: fp8_output_proj)",
    )
    narrow_activation: bool | None = Field(
        default=None,
        description="a gated activation keeps its inputs for the backward pass in 8 bits, cast there and "
        "back by kernels of their own (Megatron Core: activation_func_fp8_input_store)",
    )
    swizzled_scales: SwizzledScales | None = Field(
        default=None,
        description="kernels that bring scales of blocks into the order that products read: none, one for "
        "each operand of a call, or one for each expert's",
    )
    trains_mtp: bool | None = Field(
        default=None, description="whether the multi-token prediction layers that a model has are trained"
    )
    cross_entropy: CrossEntropy | None = Field(
        default=None,
        description="loss kernel; fused-32 reads logits cast to 32 bits, eager is Megatron-LM's over the "
        "ranks' shards of the vocabulary, native the same in compiled pieces, torch is log-softmax and "
        "negative log-likelihood, torch-held the same where the caller keeps the logits during the backward "
        "pass, torch-16 the same over 16-bit logits, chunked the same over pieces of the sequence with the "
        "output layer inside, log-probabilities those of the tokens and the entropy piece by piece in torch "
        "kernels, which compute the logits again in the backward pass",
    )
    launches_ahead: bool | None = Field(
        default=None,
        description="whether the host launches kernels while the device still runs others; with "
        "CUDA_LAUNCH_BLOCKING=1 it waits for each kernel",
    )
    linear_context: LinearContext | None = Field(
        default=None,
        description="context parallelism of linear attention; heads swaps slices of the sequence for "
        "slices of heads, lasp sends states from rank to rank, lasp-2 gathers the states of all ranks, zeco "
        "sends states in blocks from rank to rank",
    )
    binds_processes: bool | None = Field(
        default=None, description="whether processes are bound to the cores beside their device"
    )


@choice
class ChosenPlain:
    """As a release does them that states nothing."""

    attention: Attention = "flash"
    elementwise: Elementwise = "fused"
    dropout: bool = False
    gradient_bytes: ElementBytes = 4
    reduce_bytes: ElementBytes = 4
    states: States = "mixed"
    unsharded_gradients: bool = False
    update_in_backward: bool = False
    fused_latent_rope: bool = True
    rotary: Rotary = ""
    skips_blocks: bool = True
    fused_router: bool = True
    fixed_capacity: bool = False
    dispatcher_library: str = "hybridep"
    fused_accumulation: bool = True
    scaling: Scaling = ""
    narrow_parameters: bool = False
    narrow_output: bool = False
    narrow_activation: bool = False
    swizzled_scales: SwizzledScales = "none"
    trains_mtp: bool = False
    cross_entropy: CrossEntropy = "eager"
    launches_ahead: bool = True
    linear_context: LinearContext = "heads"
    binds_processes: bool = True


WORDED = (
    Lever("cross_entropy", words=lambda value: f"{value} loss"),
    Lever(
        "linear_context",
        relevant=lambda plan: plan.context > 1,
        words=lambda value: f"{value} of linear layers",
    ),
)
"""Levers that reports name."""
