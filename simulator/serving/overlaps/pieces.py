"""Steps cut into pieces that run beside each other."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from core.quantities import Few
from simulator.serving.overlaps.base import Overlap


class NanoBatches(Overlap):
    """The sequences of a step in nano-batches: products of one beside attention and all-reduces of another.

    Products of fewer tokens are less efficient, and every kernel is launched once more for each piece.
    """

    name: ClassVar[str] = "nano-batches"
    rule: ClassVar[str] = "products beside decodes' attention and all-reduces, of nano-batches"
    source: ClassVar[str] = "Zhu et al., NanoFlow (arXiv 2408.12757)"
    hides: ClassVar[tuple[str, ...]] = ("network", "memory")
    pieces: Few = Field(2, description="nano-batches of a step")


class Halves(Overlap):
    """A prompt in halves: the all-reduce of one half runs beside the products of the other."""

    name: ClassVar[str] = "halves"
    rule: ClassVar[str] = "prompts in halves, all-reduces of one beside products of the other"
    source: ClassVar[str] = "Xiao et al., ISO (arXiv 2409.11155)"
    prompts_only: ClassVar[bool] = True
    pieces: Few = Field(2, description="pieces of a prompt")


class TwoBatches(Overlap):
    """Two micro batches: one exchanges tokens with experts while the other computes."""

    name: ClassVar[str] = "two-batches"
    rule: ClassVar[str] = "exchange with experts beside attention and products of the other micro batch"
    source: ClassVar[str] = "DeepSeek-V3 (arXiv 2412.19437), section 3.4"
    hides: ClassVar[tuple[str, ...]] = ("exchange",)
    pieces: Few = Field(2, description="micro batches of a step")
