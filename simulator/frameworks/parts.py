"""What a release of a training framework does, by part of a step."""

from typing import Annotated, Literal

from pydantic import Field

from core.loading import Strict


class HostFacts(Strict):
    """What the host does while the device waits, and what it takes to launch a kernel."""

    reads_token_counts: bool = Field(
        default=True,
        description="the host waits in each layer for the tokens of each expert, unless they are fixed",
    )
    seconds_per_kernel: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="host time to launch one kernel from Python; what the device's calibration measured of "
        "eager torch where not given",
    )
    fetch_seconds: float = Field(
        default=0.0,
        ge=0,
        le=3600,
        description="host time to fetch and broadcast a micro batch before its forward pass, while the "
        "device waits",
    )
    seconds_per_token: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="host time for each token of a micro batch between its forward and its backward pass, "
        "while the device waits: loops over tokens that read them from the device",
    )
    mask_seconds: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="host time for one element of the attention mask (sequence x sequence) that the first "
        "and the last stage of a pipeline build on the CPU for every micro batch, while the device waits",
    )
    exchange_seconds: float = Field(
        default=0.0,
        ge=0,
        le=3600,
        description="host time of one transfer between pipeline stages, where the host waits for the device "
        "after each",
    )
    seconds_per_rank: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="host time under full sharding for each rank that shares a layer's parameters, in every "
        "micro batch, while the device waits: loops over the ranks around gathers and reductions",
    )
    seconds_per_shard: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="host time after an update with a sharded optimizer for each layer and each rank that "
        "shares it, while the device waits: loops that copy gathered slices of parameters to their place",
    )
    seconds_per_tensor: float = Field(
        default=0.0,
        ge=0,
        le=1,
        description="host time of a step for each trained weight tensor, while the device waits: operators "
        "of sharded tensors that clip gradients and update, dispatched after the host has read the loss",
    )
    seconds_per_step: float = Field(
        default=0.0,
        ge=0,
        le=60,
        description="host time between two steps, while the device waits: the host waits for the device and "
        "for all ranks before it logs a step and fetches the next batch",
    )


class KernelFacts(Strict):
    """Which kernels the code runs, and what they read and write.

    A field of `simulator.ops.Implementation` with the same name takes its value.
    """

    product_share: float = Field(
        default=1.0,
        gt=0,
        le=1,
        description="speed of matrix products over that of the library which the device was calibrated with",
    )
    norm: Literal["fused", "casts", "composite"] = Field(
        default="fused",
        description="norm kernel: one kernel, one over input that another casts to 32 bits, or RMSNorm as a "
        "chain of torch kernels over 32-bit values",
    )
    softmax: Literal["", "reductions", "wide"] = Field(
        default="",
        description="softmax of unfused attention in loops around its reductions (the maximum, exponentials "
        "with their sum, the division), or wide: a torch kernel with results of 32 bits, which are cast; "
        "empty: as ``elementwise`` says",
    )
    one_hot_embedding: bool = Field(
        default=False,
        description="tokens are looked up by a product of one-hot rows and the embedding's table",
    )
    whole_ends: bool = Field(
        default=False,
        description="every tensor-parallel rank holds and computes the whole embedding and output layer",
    )
    repeats_norms: bool = Field(
        default=False,
        description="norms run again before the backward pass where the plan recomputes nothing",
    )
    repeats_last_product: bool = Field(
        default=True,
        description="full recomputation runs the last product of a dense layer again, though no gradient "
        "needs its output; torch's checkpoints without re-entry stop before it, compilers leave it out",
    )
    scaled_rotary: Literal["", "halves"] = Field(
        default="",
        description="rotary embedding where positions stretched by YaRN scale heads too; empty: as others",
    )
    sinks_skip_blocks: bool = Field(
        default=True,
        description="attention with sinks leaves out masked blocks of a window, as without sinks",
    )
    gated_activation: Literal["", "eager"] = Field(
        default="",
        description="activation of a gated MLP as two torch kernels, activation and product; empty: as "
        "``elementwise`` says",
    )
    swaps_batch: bool = Field(
        default=False,
        description="fused attention reads copies of query, key and value with the batch before the "
        "sequence, and its output is copied back",
    )
    scans_batch_first: bool = Field(
        default=False,
        description="scans of linear attention read copies of their inputs with the batch before the "
        "sequence, and their output is copied back",
    )
    gathers_by_product: bool = Field(
        default=False,
        description="each product sharded by columns gathers its own sharded input, and the logits are "
        "gathered whole for the loss (plans of DTensor's parallel styles)",
    )
    slices_gradients: bool = Field(
        default=False,
        description="overlap of all tensor-parallel traffic cuts the product of the input's gradient and "
        "reduces its slices; the gather for the weights' gradient, a sum over gathered tokens, is exposed",
    )
    splits_projection: bool = Field(
        default=False,
        description="query, key and value come out of one projection and are copied apart after rotation",
    )
    separate_products: bool = Field(
        default=False,
        description="query, key and value are products of their own, as are gate and up projection, and the "
        "gradients of their input are added up",
    )
    joins_sums: bool = Field(
        default=False,
        description="where kernels between products are fused, a compiler joins sums of gradients and of "
        "experts' outputs to their neighbours; else they are kernels of their own",
    )
    stacks_activations: bool = Field(
        default=False,
        description="what forward keeps for backward is copied into a stack over the layers, and out again",
    )
    clamps_apart: bool = Field(
        default=False,
        description="limits of an activation's inputs are kernels of their own, before the fused one",
    )
    weighs_apart: bool = Field(
        default=False,
        description="the outputs of experts, or their inputs, are weighed by the scores in 32 bits, by "
        "kernels of their own, instead of inside the activation",
    )
    indexes_copies: bool = Field(
        default=False,
        description="around an all-to-all, torch's indexing kernels bring copies of tokens into the experts' "
        "order and back, and pad them",
    )
    loop_launches: float = Field(
        default=0.0,
        ge=0,
        le=1e3,
        description="kernels that a loop over a device's experts launches forward for each of them beside "
        "its products",
    )
    loop_backward_launches: float = Field(default=0.0, ge=0, le=1e3, description="the same, backward")
    metric_passes: float = Field(
        default=0.0,
        ge=0,
        le=1e3,
        description="reads and writes of each logit, of 2 bytes each, by metrics that the framework computes "
        "of every training micro batch beside the loss",
    )
    optimizer_bytes_per_parameter: float = Field(
        gt=0,
        le=1e3,
        description="memory traffic of unscaling, clipping, update "
        "and casting, per parameter that a rank owns",
    )


SCALINGS: dict[str, tuple[float, float, bool]] = {"delayed": (2.0, 1.0, True), "current": (3.0, 4.0, False)}
"""Passes and launches to quantise a tensor in fp8, and whether one kernel serves all experts, where a launch
chooses another scaling than its release. Current scaling reads each operand once more, for its largest value,
and clears, finds and uses that value (Transformer Engine, Float8CurrentScalingQuantizer); split_quantize is
one kernel under delayed scaling only."""


class CastFacts(Strict):
    """Kernels that quantise operands of products in narrow formats."""

    scaling: Literal["delayed", "current"] = Field(
        default="delayed", description="scaling of tensors in fp8 that the release's numbers are of"
    )

    passes: dict[Literal["fp8", "mxfp8", "nvfp4"], Annotated[float, Field(ge=0, le=1e3)]] = Field(
        default={"fp8": 2.0, "mxfp8": 2.0, "nvfp4": 2.5},
        description="reads and writes, of 2 bytes each, to quantise one element of a product's operand by "
        "rows and by columns: with one scale a tensor known from earlier steps, with one a block, and with "
        "both a block's and a tensor's, for which it is read twice",
    )
    launches: dict[Literal["fp8", "mxfp8", "nvfp4"], Annotated[float, Field(ge=1, le=100)]] = Field(
        default={"fp8": 1.0, "mxfp8": 1.0, "nvfp4": 2.0},
        description="kernels that quantise one operand of a product, or one expert's rows of it",
    )
    shared: list[Literal["fp8", "mxfp8", "nvfp4"]] = Field(
        default=["fp8"],
        description="formats in which one kernel quantises the rows of all experts of a device",
    )
    before_gather: bool = Field(
        default=True,
        description="tensor-parallel ranks gather operands that are cast already, in 8-bit formats",
    )
    weights: bool = Field(
        default=False,
        description="weights are quantised for every pass, not once a step: by rows forward, by columns "
        "backward",
    )
    rescales: float = Field(
        default=0.0,
        ge=0,
        le=1e3,
        description="reads and writes, of 2 bytes each, of an element of a backward product's result that a "
        "kernel of its own multiplies by the scales of rows and columns, in fp8",
    )

    def of(self, precision: str, scaling: str) -> tuple[float, float, bool]:
        """Passes, launches, and whether experts share kernels, in a format; no passes in wide ones.

        Args:
            precision: number format of linear layers.
            scaling: of fp8, where a launch chooses it; empty: the release's.
        """
        if precision == "fp8" and scaling not in ("", self.scaling):
            return SCALINGS[scaling]
        passes = next((n for name, n in self.passes.items() if name == precision), 0.0)
        launches = next((n for name, n in self.launches.items() if name == precision), 1.0)
        return passes, launches, precision in self.shared


class GradientFacts(Strict):
    """How gradients are accumulated, cast, copied and reduced."""

    cast: bool = Field(
        default=False,
        description="separate kernels cast each gradient to 32 bits and add it, in every micro batch",
    )
    clears_working: bool = Field(
        default=False,
        description="where gradients are cast, autograd's own are cleared and added to in every micro batch, "
        "instead of left to be freed",
    )
    adds_first: bool = Field(
        default=True,
        description="whether the first gradient of a step is added to zeroes; autograd keeps it as it comes "
        "where the old one was set to none",
    )
    once_in_pipelines: bool = Field(
        default=False,
        description="pipeline stages add gradients up unsharded over the micro batches and reduce them after "
        "the last one, where they are sharded too",
    )
    copy_passes: float = Field(
        default=0.0,
        ge=0,
        le=1e3,
        description="reads and writes of each gradient while it is copied into and out of the buckets that "
        "are reduced, where it does not live in them; with those of each gathered parameter, if it is copied",
    )
    scatter_from_zero: int = Field(
        default=1,
        ge=0,
        le=3,
        description="lowest ZeRO stage whose gradients are reduce-scattered instead of all-reduced",
    )
    bucket_parameters: float = Field(
        default=4e7,
        gt=0,
        description="parameters of a bucket of gradients that is reduced at once, where layers are not; "
        "Megatron-LM's --ddp-bucket-size by default, DDP's is of the same order",
    )
    bucket_parameters_per_rank: float = Field(
        default=1e6,
        ge=0,
        description="parameters of a bucket for each rank that shares them, where these are more: larger "
        "groups need larger buckets to be bound by bandwidth (Megatron Core, distributed_data_parallel.py: "
        "max(40000000, 1000000 * dp_group.size()))",
    )


class GatherFacts(Strict):
    """How sharded parameters are gathered."""

    bytes: Literal[2, 4] = Field(default=2, description="bytes of one gathered parameter on the wire")
    by_broadcast: bool = Field(
        default=False,
        description="updated parameters are sent by one broadcast a rank instead of one all-gather",
    )
    a_layer: int = Field(
        default=1,
        ge=1,
        le=1000,
        description="collectives that gather one layer under full sharding: 1 where "
        "a layer is wrapped as a whole, one a submodule elsewhere",
    )
    copied_out: bool = Field(
        default=False,
        description="a layer is gathered into a buffer that nothing else uses, and copied out of it",
    )
    again: bool = Field(default=False, description="full recomputation gathers the parameters once more")
    reuse_parameters: float = Field(
        default=0.0,
        ge=0,
        le=1e18,
        description="parameters in use between two uses of a weight up to which it is kept instead of "
        "gathered once more",
    )
    prefetch_parameters: float = Field(
        default=1e18,
        gt=0,
        description="parameters that may be gathered ahead; the gathers of a larger layer are not hidden",
    )


class MemoryFacts(Strict):
    """What is allocated beside the model and its activations."""

    context_bytes: float = Field(ge=0, le=1e13, description="memory of the driver context and libraries")
    buffer_bytes_per_group: float = Field(
        ge=0, le=1e13, description="communication buffers of one process group"
    )
    bucket_bytes: float = Field(
        default=0.0,
        ge=0,
        le=1e13,
        description="flat buckets for reducing and gathering, where they are extra memory",
    )
    separate_master: bool = Field(
        default=True,
        description="a 32-bit master copy beside the working parameters; FSDP keeps only "
        "the sharded 32-bit parameter",
    )
    optimizer_gradient_bytes: float = Field(
        default=0.0,
        ge=0,
        le=1e3,
        description="bytes of gradients that the optimizer holds beside "
        "the accumulated ones, per parameter that a rank owns",
    )
    working_gradient_bytes: float = Field(
        default=0.0,
        ge=0,
        le=1e3,
        description="bytes of a 16-bit gradient that stays beside a 32-bit accumulated one, per parameter",
    )
    shared: bool = Field(
        default=False,
        description="the release stands for several trainers, whose loop, loss and layers differ",
    )
    loss_in_place: bool = Field(
        default=False, description="the gradient of a fused loss takes the place of the logits"
    )
    loss_copies: bool = Field(
        default=False, description="an eager loss leaves the 32-bit logits as they are, and copies them"
    )
    partitioned_inputs: bool = Field(
        default=False,
        description="inputs of layers that are recomputed whole are spread over tensor-parallel ranks",
    )
    narrow_copies: bool = Field(
        default=False,
        description="8-bit and 4-bit products read copies of 16-bit weights that stay for all micro batches",
    )
    fragmentation: float = Field(
        ge=1, le=10, description="reserved over allocated memory of the caching allocator"
    )
