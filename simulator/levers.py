"""Choices of a launch script beyond degrees: kernels, dispatcher, graphs, recomputed modules, formats.

A framework states what its release does by default (``defaults``) and which values it offers; a recipe and a
plan choose. A field that a plan leaves out is the release's default.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from pydantic import Field, field_validator

from core.loading import Strict

Attention = Literal["flash", "flash-mx8", "flash-3", "flash-2", "flash-1", "flash-1-triton", "unfused"]
Elementwise = Literal["fused", "eager"]
Rotary = Literal["", "halves"]
ExpertKernels = Literal["one", "per-expert", "fused-mlp"]
Dispatcher = Literal["all-to-all", "flex", "flex-between-nodes"]
Graphs = Literal["none", "slow-hosts", "router", "attention", "layer", "step"]
Swizzles = Literal["none", "one", "per-expert"]
LossKernel = Literal[
    "fused", "fused-32", "native", "eager", "torch", "torch-held", "torch-16", "chunked", "log-probabilities"
]
Scaling = Literal["", "delayed", "current"]
States = Literal["mixed", "moments-16", "bf16", "8-bit"]
ModuleName = Literal[
    "core_attn", "mla_up_proj", "layernorm", "mlp", "mlp_act", "moe_act", "shared_experts", "moe"
]
MODULE_NAMES: tuple[ModuleName, ...] = get_args(ModuleName)


class Levers(Strict):
    """Choices of a launch script; None is the default of the framework's release."""

    attention: Attention | None = Field(
        default=None,
        description="attention kernel; flash is the one that Transformer Engine and torch take (cuDNN on "
        "Hopper, the fastest elsewhere), flash-mx8 cuDNN's over queries, keys and values in MXFP8 "
        "(fp8_dot_product_attention), flash-3 FlashAttention-3, which runs on Hopper alone",
    )
    elementwise: Elementwise | None = Field(
        default=None, description="whether bias, dropout, residual, activation and rotary kernels are fused"
    )
    dropout: bool | None = Field(
        default=None, description="dropout after attention and MLP, where the workload states none"
    )
    gradient_bytes: Literal[2, 4] | None = Field(
        default=None, description="bytes of one accumulated gradient"
    )
    reduce_bytes: Literal[2, 4] | None = Field(default=None, description="bytes of one gradient on the wire")
    states: States | None = Field(
        default=None,
        description="formats of the state: mixed has parameters or a copy of them, and Adam's moments, in 32 "
        "bits; moments-16 the same with moments of 16 bits (Megatron Core's precision-aware optimizer with "
        "exp_avg_dtype bf16); bf16 has parameters, gradients and moments in 16 bits only; 8-bit the same "
        "with moments of 8 bits (Dettmers et al. 2021)",
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
    grouped_launches: ExpertKernels | None = Field(
        default=None,
        description="whether the products of all experts are one kernel or one kernel each, or one with "
        "activation and casts inside (fused-mlp)",
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
    dispatcher: Dispatcher | None = Field(
        default=None,
        description="what sends tokens to experts: an all-to-all with one copy an expert, DeepEP or HybridEP "
        "(Megatron's flex dispatcher) with one copy a rank or node, or these only where experts span nodes",
    )
    dispatcher_library: str | None = Field(
        default=None,
        description="library behind the flex dispatcher, whose rate the calibration of links or fabric may "
        "state: hybridep, deepep, uccl, nvshmem",
    )
    graphs: Graphs | None = Field(
        default=None,
        description="kernels that are replayed from CUDA graphs: none; router, dispatch preparation and "
        "shared experts of layers with experts (router); attention too (attention), or these only on hosts "
        "that launch slowly, as Grace (slow-hosts); whole dense layers too (layer); all (step)",
    )
    fused_accumulation: bool | None = Field(
        default=None, description="weight gradients accumulate inside the matrix product"
    )
    scaling: Literal["delayed", "current"] | None = Field(
        default=None,
        description="scales of tensors in fp8: from the largest values of earlier steps (delayed), or from "
        "each tensor's own (current), which reads it once more and loses less",
    )
    narrow_output: bool | None = Field(
        default=None,
        description="the output layer runs in the format of the linear layers, not in 16 bits (Megatron "
        "Core: fp8_output_proj)",
    )
    swizzled_scales: Swizzles | None = Field(
        default=None,
        description="kernels that bring scales of blocks into the order that products read: none, one for "
        "each operand of a call, or one for each expert's",
    )
    trains_mtp: bool | None = Field(
        default=None, description="whether the multi-token prediction layers that a model has are trained"
    )
    cross_entropy: LossKernel | None = Field(
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
    binds_processes: bool | None = Field(
        default=None, description="whether processes are bound to the cores beside their device"
    )
    recompute_modules: tuple[ModuleName, ...] | None = Field(
        default=None, description="modules that selective recomputation repeats; default: as the release does"
    )

    @field_validator("recompute_modules", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        """Names in the order of ``MODULE_NAMES``, from a list or from text such as ``moe_act+mlp``."""
        if isinstance(value, str):
            value = [word for word in value.split("+") if word and word != "none"]
        if not isinstance(value, list | tuple):
            return value
        known = [name for name in MODULE_NAMES if name in value]
        return tuple(known + [name for name in value if name not in MODULE_NAMES])


@dataclass(frozen=True)
class Choices:
    """Every lever with a value: what a release does that states nothing, unless told otherwise."""

    attention: Attention = "flash"
    elementwise: Elementwise = "fused"
    dropout: bool = False
    gradient_bytes: Literal[2, 4] = 4
    reduce_bytes: Literal[2, 4] = 4
    states: States = "mixed"
    unsharded_gradients: bool = False
    update_in_backward: bool = False
    fused_latent_rope: bool = True
    rotary: Rotary = ""
    grouped_launches: ExpertKernels = "per-expert"
    skips_blocks: bool = True
    fused_router: bool = True
    fixed_capacity: bool = False
    dispatcher: Dispatcher = "all-to-all"
    dispatcher_library: str = "hybridep"
    graphs: Graphs = "none"
    fused_accumulation: bool = True
    scaling: Scaling = ""
    narrow_output: bool = False
    swizzled_scales: Swizzles = "none"
    trains_mtp: bool = False
    cross_entropy: LossKernel = "eager"
    launches_ahead: bool = True
    binds_processes: bool = True
    recompute_modules: tuple[ModuleName, ...] | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Choices":
        """The levers among plan fields; other fields are ignored."""
        levers = Levers.model_validate({name: values[name] for name in LEVERS if name in values})
        return cls(**stated(levers))


LEVERS = tuple(each.name for each in fields(Choices))
"""All levers, in the order of their description."""

BY_PLAN = ("dispatcher", "grouped_launches", "graphs", "recompute_modules")
"""Levers in which plans of one call may differ; they act through the ops and passes of a layer only."""

SHARED = tuple(name for name in LEVERS if name not in BY_PLAN)
"""Levers that all plans of one call share."""


def stated(levers: Levers) -> dict[str, Any]:
    """The levers that are not left to the release."""
    values = ((name, getattr(levers, name)) for name in LEVERS)
    return {name: value for name, value in values if value is not None}


def modules_code(names: Iterable[str] | None) -> int:
    """A set of modules as the bits of a number; -1 where it is left to the release."""
    return -1 if names is None else sum(1 << MODULE_NAMES.index(name) for name in names)  # type: ignore[arg-type]


def modules_of(code: int) -> tuple[ModuleName, ...] | None:
    """The modules of a code."""
    return None if code < 0 else tuple(name for bit, name in enumerate(MODULE_NAMES) if code >> bit & 1)
