"""ControlNets and adapters of a request: what they add to a step, and to its begin.

A ControlNet is the encoder of a U-Net, once more, over a picture that guides the image; its outputs are
added to those of the encoder (Zhang et al. 2023, arXiv 2302.05543). An adapter is merged into the weights
before the steps, or while the first of them run (SwiftDiffusion, arXiv 2407.02031).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.loading import Strict
from simulator.diffusion.layout import Layout
from simulator.diffusion.models import DiffusionModel
from simulator.diffusion.ops import WIDTH, TransformerCall, block_ops, call_ops
from simulator.ops.op import MemoryBound, Op, Product

Count = Annotated[int, Field(ge=0, le=64)]
HINT = ((3, 16, 1), (16, 16, 1), (16, 32, 2), (32, 32, 2), (32, 96, 4), (96, 96, 4), (96, 256, 8))
"""Convolutions over the guiding picture: inputs, outputs, and the side of pixels that one output stands for
(diffusers, ControlNetConditioningEmbedding)."""
MERGE_LAUNCHES = 4.0
"""Kernels that merge an adapter into one weight: product, scale, sum, copy (peft, lora/layer.py, merge)."""


class Addons(Strict):
    """ControlNets and adapters of every prompt."""

    controls: Count = Field(0, description="ControlNets that guide every step")
    placement: Literal["shared", "own", "service"] = Field(
        "shared",
        description="shared: one after the other on the devices of the layout; own: each on as many "
        "further devices, beside the encoder of the U-Net; service: each on further devices for one copy of "
        "the layout, which serve all copies in turn",
    )
    uncached: float = Field(
        0.0, ge=0, le=1, description="share of prompts whose ControlNets must be read first"
    )
    adapters: Count = Field(0, description="adapters (LoRA) that a prompt brings")
    rank: Annotated[int, Field(ge=1, le=4096)] = Field(64, description="of an adapter")
    merged: Literal["before", "beside"] = Field(
        "before", description="before: adapters are read before the first step; beside: while first steps run"
    )
    bound: Annotated[int, Field(ge=1, le=10_000)] = Field(
        10, description="steps that may run without the adapters, with `merged: beside`"
    )
    source: Literal["host", "disk"] = Field("disk", description="where weights come from")

    @model_validator(mode="after")
    def _consistent(self) -> Addons:
        if not self.controls and (self.placement != "shared" or self.uncached):
            raise ValueError("placement and uncached are about ControlNets; controls is 0")
        if not self.adapters and self.merged == "beside":
            raise ValueError("merged is about adapters; adapters is 0")
        return self

    @property
    def apart(self) -> bool:
        """Whether ControlNets have devices of their own."""
        return self.placement != "shared"

    def devices(self, layout: Layout) -> int:
        """Devices of a layout with those of its ControlNets."""
        of_one = {"shared": 0, "own": layout.devices, "service": layout.copy_devices}[self.placement]
        return layout.devices + self.controls * of_one


def control_ops(call: TransformerCall) -> list[Op]:
    """Ops of one ControlNet on one rank: its blocks, one product for each output, and the guiding picture.

    Raises:
        ValueError: the model has no known ControlNet.
    """
    ops = block_ops(call, call.model.control)
    if not ops:
        raise ValueError(f"no ControlNet of {call.model.name} is known")
    for rows, width, count in outputs(call):
        ops.append(
            Product(name="control.zero", m=rows, n=width, k=width, launches=count, repeats=count,
                    parameters=count * (width * width + width))
        )  # fmt: skip
    side = float(2 ** (len(call.model.decoder.channels) - 1))
    for number, (inputs, width, shrink) in enumerate(HINT):
        ops += _hint(f"control.hint.{number}", call.rows * (side / shrink) ** 2, inputs, width)
    return [*ops, *_hint("control.hint.last", call.rows, HINT[-1][1], call.model.hidden)]


def _hint(name: str, pixels: float, inputs: float, width: float) -> Iterator[Op]:
    weights = 9.0 * inputs * width + width
    yield Product(
        name=name, kind="convolution", m=pixels, n=width, k=9.0 * inputs, window=9.0, parameters=weights
    )
    yield MemoryBound(name=f"{name}.silu", kind="elementwise", bytes=2 * WIDTH * pixels * width)


def repeated_ops(call: TransformerCall) -> list[Op]:
    """Ops of the model's own blocks that a ControlNet repeats."""
    return block_ops(call, call.model.control)


def outputs(call: TransformerCall) -> Iterator[tuple[float, float, float]]:
    """Outputs of a ControlNet on one rank: rows, width and number of each kind."""
    for blocks in call.model.control:
        if not blocks.attends:
            width = float(blocks.hidden or call.model.hidden)
            yield call.rows / blocks.shrink**2, width, float(blocks.count)


def output_bytes(call: TransformerCall) -> float:
    """Bytes that a ControlNet hands to the model in a call, on one rank."""
    return sum(WIDTH * rows * width * count for rows, width, count in outputs(call))


def sum_ops(call: TransformerCall, controls: int) -> Iterator[Op]:
    """Sums of the outputs of some ControlNets with those of the encoder."""
    for rows, width, count in outputs(call):
        moved_bytes = 3 * WIDTH * rows * width * count * controls
        yield MemoryBound(
            name="control.sum", kind="elementwise", bytes=moved_bytes, launches=count * controls
        )


def control_parameters(model: DiffusionModel) -> int:
    """Parameters of a ControlNet."""
    return round(sum(float(op.parameters) for op in control_ops(TransformerCall(model, 1.0, 1.0))))


def adapted(model: DiffusionModel) -> list[Product]:
    """Products with weights that adapters change: those of blocks with attention."""
    ops = call_ops(TransformerCall(model, 1.0, 1.0))
    return [op for op in ops if isinstance(op, Product) and op.weights and op.kind != "convolution"]


def adapter_bytes(model: DiffusionModel, rank: int) -> float:
    """Bytes of an adapter: two matrices for each weight; queries, keys and values have theirs each."""
    return WIDTH * rank * sum(float(op.launches * op.k + op.repeats * op.n) for op in adapted(model))


def merge_ops(model: DiffusionModel) -> list[Op]:
    """Kernels that merge an adapter: the change of each weight is made, and added."""
    products = adapted(model)
    moved_bytes = 5 * WIDTH * sum(float(op.parameters) for op in products)
    launches = MERGE_LAUNCHES * sum(float(op.launches) for op in products)
    return [MemoryBound(name="adapter.merge", kind="elementwise", bytes=moved_bytes, launches=launches)]
