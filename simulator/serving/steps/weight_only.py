"""Number formats of weights and of products, and products whose weights are narrower than their inputs.

Weight-only kernels (Marlin, Machete) read narrow weights and widen them in registers, so a product that waits
for its weights takes less time, and one that waits for the matrix units takes no less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodels.cluster import Cluster
from hwmodels.kernels import KernelModel
from hwmodels.kernels.chip import ELEMENT_BYTES, Specifications
from hwmodels.kernels.grouped_gemm import SERVED_READ_SHARE
from simulator.models import Model
from simulator.serving.engines import Engine

Array = NDArray[np.float64]

NARROW: dict[str, tuple[str, ...]] = {
    "fp8": ("fp8",),
    "int8": ("int8", "fp8"),
    "fp4": ("nvfp4", "mxfp4"),
    "int4": (),
}
"""Peaks that a device needs to compute in a weight format; without them weights are widened to 16 bits."""

WEIGHT_BYTES = {"fp32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.53, "fp4": 0.5625}
"""Bytes of a weight, scales included (int4: groups of 128; fp4: groups of 16)."""
ENDS_BYTES = 2.0
"""Embedding and output layer stay in 16 bits in most quantised checkpoints."""
MXFP4_BYTES = 0.5 + 1 / 32
"""The same of fp4 in blocks of 32 (OCP Microscaling Formats 1.0: one scale of 8 bits)."""


def stored_bytes(model: Model, weights: str) -> float:
    """Bytes of a weight of a model, scales included."""
    return MXFP4_BYTES if weights == "fp4" and model.fp4 == "mxfp4" else WEIGHT_BYTES[weights]


READ_SHARE = 0.95
"""Share of the bandwidth at which a product saves its weights' bytes. 8,192 x 8,192 weights in 16, 8 and 4
bits on H100 take 58.4, 38.8 and 26.9 us at one token: 0.96 and 1.02 of 3.35 TB/s (inclusionAI/humming, pull
2)."""
CALL_S = 4.8e-6
"""Further time of each product: scales, partial sums and their reduction. Llama-3.1-8B at one sequence on
H100, 8 and 4 bits alike (vllm-project/vllm, pull 23197)."""
FIXED_S = 17e-6
"""Time of a product of 16 bits beside its bytes that narrow weights leave: 58.4 us less 134 MB at 0.96 of
3.35 TB/s (the same product of pull 2). The rest is reading, at the rate that the device
reaches: on an A10, whose 16-bit products read at 0.77 of the data sheet, Marlin is 3.87 times as fast
(IST-DASLab/marlin)."""

COMPUTE_SHARE = 0.8
"""Share of the 16-bit peak that weight-only products reach, as other products do: 0.97 to 1.03 of their speed
at 512 and 1,024 tokens on Ada (vllm-project/vllm, pull 24722); Machete does on Hopper."""
FIRST_SHARE = 0.45
"""The same of the first Marlin, which computes more than 64 tokens as blocks of 64: 141 of A100's 312 TFLOP/s
from 64 tokens on (vllm-project/vllm, pull 2497)."""
FIRST_UNTIL = "vllm", (0, 9)
"""Engine and version that no longer run it (vllm-project/vllm, pull 16850, in 0.8.5)."""

EXPERTS_READ_SHARE = 0.75
"""Share of the bandwidth of experts with narrow weights (`SERVED_READ_SHARE` in 16 bits), where memory bounds
them: over the shapes of one half of aiconfigurator 0.12's tables (int4 of SGLang 0.5.10 and vLLM 0.24 on
A100, H100 and L40S); the largest experts reach 0.85."""
EXPERTS_READ_RATE = {"marlin": 21e9, "triton": 15.6e9}
"""Bytes/s of narrow weights that one multiprocessor reads and widens, over the same shapes; the largest reach
24 (3.1 TB/s on H200, 3.75 on B200; 1.7 on H20: flagos-ai/FlagGems, pull 3609) and 18 (Triton's MXFP4 of
gpt-oss in vLLM 0.24, 2.4 TB/s on H100 and H200 alike)."""
EXPERTS_COMPUTE_RATE = {"marlin": 1.75e12, "triton": 3.4e12}
"""FLOP/s of one multiprocessor in these kernels from 2,048 tokens on: 230 and 450 TFLOP/s on H100 and H200
(same tables; the largest experts reach 280 and 555)."""
EXPERTS_TILE = 256, 128
"""Multiples of the model's and an expert's width in which Marlin stores MXFP4 experts (vllm v0.11 and SGLang,
mxfp4.py: create_weights)."""
MXFP4_FORMATS = {
    "vllm": ("mxfp4_w4a16",),
    "sglang": ("mxfp4_w4a8", "mxfp4_w4a16"),
    "tensorrt-llm": ("mxfp4_w4a8",),
}
"""Formats of MXFP4 experts on Blackwell by engine: activations of 16 bits in vLLM (mxfp4.py), of 8 in
TensorRT-LLM (W4A8_MXFP4_MXFP8) and SGLang (flashinfer_mxfp4_moe_precision)."""
MXFP4_ACTIVATIONS_8 = ("mxfp4_w4a8",)
"""Format of MXFP4 experts where the deployment asks for activations of 8 bits
(vLLM: ``VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8``)."""
EXPERTS_COMPUTE_SHARE = 0.54
"""Share of the 16-bit peak that they reach at most: 150 of A100's 312 TFLOP/s, 194 of L40S' 362, 80 of H20's
148 (flagos-ai/FlagGems, pull 4483)."""


@dataclass(frozen=True)
class WeightFormats:
    """Number formats of a deployment's products and weights."""

    dense: str
    """dtype of the kernels of dense MLP products."""
    experts: str
    """dtype of the kernels of expert products."""
    dense_bytes: float
    expert_bytes: float
    dense_widened: bool
    """Whether weights are narrower than the kernels' dtype (weight-only quantisation)."""
    experts_widened: bool
    experts_tiled: bool = False
    """Whether experts are stored in whole tiles of `EXPERTS_TILE`."""
    attention: str = ""
    """dtype of the kernels of attention's products; empty: `dense`."""
    attention_bytes: float = 0.0
    attention_widened: bool = False
    head_bytes: float = 2.0
    experts_narrowed: bool = False
    """Whether activations of MXFP4 experts are 8 bits wide by the deployment's wish."""

    def padding(self, hidden: int, width: float) -> float:
        """Return the stored over the model's own size of an expert.

        Args:
            hidden: model width.
            width: of one device's share of an expert.
        """
        if not self.experts_tiled:
            return 1.0
        sizes = zip((hidden, width), EXPERTS_TILE, strict=True)
        return math.prod(tile * math.ceil(size / tile) / size for size, tile in sizes)

    def timed(self, kernels: KernelModel, engine: Engine, stated: str | None = None) -> WeightFormats:
        """The same with 4-bit experts in a format of their own, where the device's tables have their kernel.

        Marlin reads int4 and MXFP4 alike: both take 0.53 bytes a weight with their scales.

        Args:
            kernels: of the device.
            engine: whose kernels run.
            stated: kernels of experts that the deployment names.
        """
        mxfp4 = self.expert_bytes == MXFP4_BYTES
        if not self.experts_widened and mxfp4:
            formats = MXFP4_ACTIVATIONS_8 if self.experts_narrowed else MXFP4_FORMATS.get(engine.engine, ())
            timed = filter(kernels.times_experts, formats)
            return replace(self, experts=next(timed, self.experts))
        if not self.experts_widened or self.experts not in ("bf16", "fp16"):
            return self
        kernel = experts_kernel(self, kernels.device, engine, stated)
        stored = replace(self, experts_tiled=mxfp4 and kernel == "marlin")
        name = {"triton": "mxfp4_w4a16", "marlin": "int4_w4a16"}[kernel]
        if not (mxfp4 or self.expert_bytes == WEIGHT_BYTES["int4"]) or not kernels.times_experts(name):
            return stored
        return replace(stored, experts=name, experts_widened=False)

    @classmethod
    def of(
        cls, model: Model, cluster: Cluster, weights: str, activations: str | None = None
    ) -> WeightFormats:
        """Formats of a model's weights on a device.

        Block-scaled fp8 is the format of expert models' checkpoints. Where the checkpoint does not state the
        formats of its parts, fp4 checkpoints of expert models keep attention in 16 bits. A part of several
        formats runs the kernels of the one that most of its weights have.

        Args:
            model: the architecture.
            cluster: its device.
            weights: format of the weights.
            activations: format of the products' inputs; that of the weights where the device computes in it.
        """
        stated = model.parts if weights == model.checkpoint else None
        only_experts = weights == "fp4" and model.moe is not None
        others = "bf16" if only_experts else weights
        shares = {
            part: (getattr(stated, part) if stated else {}) or {uniform: 1.0}
            for part, uniform in (("attention", others), ("dense", others), ("experts", weights))
        }
        peaks, by_part = cluster.device.peak_flops, {}
        for part, formats in shares.items():
            commonest = max(formats, key=lambda name: formats[name])
            inputs = activations
            if inputs is None and weights == model.checkpoint and commonest in model.weight_only:
                inputs = "bf16"
            size = sum(share * _stored_in(model, name) for name, share in formats.items())
            by_part[part] = *_computed(commonest, peaks, inputs, model.moe is not None), size
        attention, dense, experts = (by_part[part] for part in ("attention", "dense", "experts"))
        narrowed = activations == "fp8" and experts[2] == MXFP4_BYTES and "mxfp4" in peaks
        if narrowed:
            experts = "mxfp4", False, experts[2]
        head = sum(share * _stored_in(model, name) for name, share in stated.head.items()) if stated else 0.0
        return cls(
            *(dense[0], experts[0], dense[2], experts[2], dense[1], experts[1]),
            attention=attention[0],
            attention_bytes=attention[2],
            attention_widened=attention[1],
            head_bytes=head or ENDS_BYTES,
            experts_narrowed=narrowed,
        )

    def of_attention(self) -> WeightFormats:
        """The formats with those of attention in place of dense MLPs'."""
        if not self.attention:
            return self
        return replace(
            self,
            dense=self.attention,
            dense_bytes=self.attention_bytes,
            dense_widened=self.attention_widened,
        )


def wide_format(peaks: Mapping[Any, float]) -> str:
    """The format of 16 bits that a device computes in: fp16 before Ampere, whatever the checkpoint has."""
    return "fp16" if "bf16" not in peaks and "fp16" in peaks else "bf16"


def _stored_in(model: Model, weights: str) -> float:
    """Bytes of a weight; formats of 16 bits and more are computed, and kept, in 16."""
    return stored_bytes(model, weights) if weights in NARROW else ENDS_BYTES


def _computed(
    weights: str, peaks: Mapping[Any, float], activations: str | None, blocks: bool
) -> tuple[str, bool]:
    """The dtype of a product's kernel, and whether its weights are narrower.

    Args:
        weights: their format.
        peaks: of the device, by format.
        activations: format of the inputs; None: that of the weights.
        blocks: whether weights of 8 bits have scales by block.
    """
    if weights not in NARROW:
        return wide_format(peaks), False
    if activations in ("fp8", "int8") and weights in ("int4", "fp4") and activations in peaks:
        return activations, True
    wide = activations is not None and WEIGHT_BYTES[activations] >= 2.0
    if wide or not any(name in peaks for name in NARROW[weights]):
        return wide_format(peaks), True
    four_bits = "nvfp4" if "nvfp4" in peaks else "mxfp4"
    return {"fp8": "fp8_block" if blocks else "fp8", "int8": "int8", "fp4": four_bits}[weights], False


def widened_product(
    formats: WeightFormats,
    device: Specifications,
    seconds: Array,
    parameters: Array,
    flops: Array,
    engine: Engine,
    slow_reads: bool = True,
) -> Array:
    """Return the seconds of a dense product with narrow weights.

    Args:
        formats: of the weights, and of the kernel that computes on them once widened.
        device: its data sheet.
        seconds: of the same product with weights as wide as the kernel's inputs.
        parameters: weights that are read.
        flops: of the product.
        engine: whose kernels run.
        slow_reads: a product, whose weights the device may read below its bandwidth; not a norm.
    """
    wide, narrow = ELEMENT_BYTES[formats.dense], formats.dense_bytes
    read = parameters / (READ_SHARE * device.memory_bandwidth)
    share = FIRST_SHARE if _runs_first(engine.engine, engine.version) else COMPUTE_SHARE
    computed = flops / (share * device.peak(formats.dense))
    # Savings fall with the square of the matrix units' load: 1.0, 0.8, 0.5 and 0 of the time of the bytes at
    # 16, 32, 64 and 128 tokens on A100 (vllm-project/vllm, pull 2497).
    if slow_reads:
        # Only where bytes bound the product is its excess over them slow reading.
        bound = np.clip(1.0 - (computed / (wide * read)) ** 2, 0.0, 1.0)
        read = read + bound * np.maximum((seconds - FIXED_S) / wide - read, 0.0)
    saved = np.clip(1.0 - (computed / seconds) ** 2, 0.0, 1.0) * (wide - narrow) * read
    return CALL_S + np.maximum(seconds - saved, np.maximum(computed, narrow * read))


def experts_kernel(
    formats: WeightFormats, device: Specifications, engine: Engine, stated: str | None = None
) -> str:
    """Return the kernels of 4-bit experts: gpt-oss' may run in Triton on Hopper, others run in Marlin.

    Args:
        formats: of the weights.
        device: its data sheet.
        engine: whose default counts where the deployment names none.
        stated: kernels that the deployment names.
    """
    mxfp4 = device.generation.mxfp4_triton and formats.expert_bytes == MXFP4_BYTES
    return (stated or engine.mxfp4_hopper.value) if mxfp4 else "marlin"


def widened_experts(
    formats: WeightFormats, device: Specifications, seconds: Array, flops: Array, kernel: str
) -> Array:
    """Return the seconds of an expert layer with narrow weights; see `widened_product`.

    Only weights of experts with tokens are read: the whole call scales with the width of a weight, and with
    the rate at which memory or the multiprocessors deliver them.
    """
    delivered = EXPERTS_READ_RATE[kernel] * device.multiprocessors / device.memory_bandwidth
    slower = SERVED_READ_SHARE / min(EXPERTS_READ_SHARE, delivered)
    narrower = formats.expert_bytes / ELEMENT_BYTES[formats.experts]
    rate = min(
        EXPERTS_COMPUTE_SHARE * device.peak(formats.experts),
        EXPERTS_COMPUTE_RATE[kernel] * device.multiprocessors,
    )
    return np.maximum(seconds * narrower * slower, flops / rate)


@cache
def _runs_first(engine: str, version: str) -> bool:
    family, until = FIRST_UNTIL
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return engine == family and len(parts) == 2 and parts < until
