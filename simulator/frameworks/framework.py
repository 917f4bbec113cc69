"""Properties of a release of a training framework that no plan states.

How its code casts, copies and gathers, how long its host code takes to launch a kernel, what it allocates
beside the model; under ``defaults`` what a plan is that leaves a field out. Each constant belongs to a
framework, never to a case, and names its source.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, field_validator, model_validator

from hwmodels.errors import InputError, suggestion
from hwmodels.loading import Catalogue, build
from hwmodels.sources import Sourced
from simulator.levers import LEVERS
from simulator.plan import Plan


def moved_keys(keys: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split keys of a framework of version 0.6 into those that it still has, and plan fields."""
    kept = {name: value for name, value in keys.items() if name not in LEVERS}
    levers = {name: value for name, value in keys.items() if name in LEVERS}
    if kept.get("selective") == "modules":
        del kept["selective"]
        levers["recompute_modules"] = keys.get("modules", [])
    kept.pop("modules", None)
    # Numbers of a file may carry their source.
    plain = {n: v["value"] if isinstance(v, Mapping) and "value" in v else v for n, v in levers.items()}
    return kept, plain


def say_moved(levers: Mapping[str, Any], where: str) -> None:
    """Warn that keys of a user's file became plan fields."""
    if levers:
        names = ", ".join(levers)
        message = f"{where}: {names} became plan fields and are read in this version only; write them under "
        warnings.warn(
            message + "'plan' of a scenario or recipe, or 'defaults' of a framework", FutureWarning, 2
        )


class Framework(Sourced):
    """Properties of a training framework that change the time or memory of a step.

    ``origins`` holds the source of each number, ``source`` those of the other facts.
    """

    UNSOURCED = frozenset({"defaults", "offers", "by_precision"})

    name: str
    title: str = Field(description="what it is, with versions")
    selective: Literal["core", "all-but-projections", "every-other-product"] = Field(
        "core",
        description="what selective recomputation repeats where a plan names no modules: the attention core "
        "(Korthikanti et al. 2022), all but the projections around it, or all but attention and every other "
        "product",
    )
    product_share: float = Field(
        1.0,
        gt=0,
        le=1,
        description="speed of matrix products over that of the library which the device was calibrated with",
    )
    norm: Literal["fused", "casts", "composite"] = Field(
        "fused",
        description="norm kernel: one kernel, one over input that another casts to 32 bits, or RMSNorm as a "
        "chain of torch kernels over 32-bit values",
    )
    repeats_norms: bool = Field(
        False, description="norms run again before the backward pass where the plan recomputes nothing"
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
    scans_batch_first: bool = Field(
        False,
        description="scans of linear attention read copies of their inputs with the batch before the "
        "sequence, and their output is copied back",
    )
    gathers_by_product: bool = Field(
        False,
        description="each product sharded by columns gathers its own sharded input, and the logits are "
        "gathered whole for the loss (plans of DTensor's parallel styles)",
    )
    splits_projection: bool = Field(
        False,
        description="query, key and value come out of one projection and are copied apart after rotation",
    )
    stacks_activations: bool = Field(
        False,
        description="what forward keeps for backward is copied into a stack over the layers, and out again",
    )
    clamps_apart: bool = Field(
        False, description="limits of an activation's inputs are kernels of their own, before the fused one"
    )
    reads_token_counts: bool = Field(
        True, description="the host waits in each layer for the tokens of each expert, unless they are fixed"
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
    casts_weights: bool = Field(False, description="weights are quantised for every pass, not once a step")
    gather_bytes: Literal[2, 4] = Field(2, description="bytes of one gathered parameter on the wire")
    scatter_from_zero: int = Field(
        1,
        ge=0,
        le=3,
        description="lowest ZeRO stage whose gradients are reduce-scattered instead of all-reduced",
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
    unbound_slowdown: float = Field(
        1.5,
        ge=1,
        le=100,
        description="host time to launch a kernel where processes are not bound to the cores beside their "
        "device, over that where they are: a torch kernel takes Grace 2.75 times as long to launch as a Xeon "
        "(37.1 and 13.5 us, Transformer Engine issue 2053), 1.5 times the 1.83 of steps that bind",
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
    bucket_parameters_per_rank: float = Field(
        1e6,
        ge=0,
        description="parameters of a bucket for each rank that shares them, where these are more: larger "
        "groups need larger buckets to be bound by bandwidth (Megatron Core, distributed_data_parallel.py: "
        "max(40000000, 1000000 * dp_group.size()))",
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
    offers: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="values that the release offers of the plan fields listed here; a search tries those of "
        "levers beside the default",
    )
    by_precision: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="keys of the framework that differ in one number format of training; under `defaults` "
        "plan fields",
    )
    source: dict[str, str] = Field(
        description="where the facts that are no numbers come from; a number may name its source itself"
    )

    @model_validator(mode="wrap")
    @classmethod
    def _completed(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Add what the release that it is based on states, and read keys of version 0.6."""
        if not isinstance(data, Mapping):
            return handler(data)
        kept, levers = moved_keys(data)
        say_moved(levers, f"framework {data.get('name', '')}")
        if levers:
            kept["defaults"] = {**kept.get("defaults", {}), **levers}
        if base := kept.pop("based_on", None):
            if frameworks.resolve(str(base)) is None:
                raise ValueError(
                    f"based_on: unknown framework {base!r}{suggestion(str(base), frameworks.names())}"
                )
            kept = _merged(frameworks.definition(frameworks.resolve(str(base)) or ""), kept)
        return handler(kept)

    def under(self, precision: str) -> Framework:
        """The framework as it trains in a number format."""
        changes = dict(self.by_precision.get(precision, {}))
        if not changes:
            return self
        defaults = {**self.defaults, **changes.pop("defaults", {})}
        return self.model_copy(update={**changes, "defaults": defaults})

    @field_validator("by_precision")
    @classmethod
    def _own_keys(cls, changes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for precision, keys in changes.items():
            for name in keys.keys() - cls.model_fields.keys():
                raise ValueError(f"{precision}: unknown key {name!r}{suggestion(name, cls.model_fields)}")
        return changes

    @field_validator("defaults")
    @classmethod
    def _plan_fields(cls, defaults: dict[str, Any]) -> dict[str, Any]:
        try:
            build(Plan, {**defaults, "tensor": 2}, "")  # sequence_parallel alone would be refused
        except InputError as error:
            raise ValueError(error.problem) from None
        return defaults


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A definition with changes; defaults and sources merge key by key."""
    if name := base.get("based_on"):
        base = _merged(frameworks.definition(name), {k: v for k, v in base.items() if k != "based_on"})
    parts = {
        name: {**base.get(name, {}), **changes.get(name, {})} for name in ("defaults", "offers", "source")
    }
    return {**base, **changes, **parts}


frameworks = Catalogue("framework", Path(__file__).parent, Framework)
