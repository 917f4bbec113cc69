"""The attention kernel."""

from typing import Literal

from pydantic import Field

from simulator.levers.lever import Lever, Partial, chosen

Value = Literal[
    "flash", "flash-mx8", "flash-3", "flash-torch", "flash-2", "flash-1", "flash-1-triton", "unfused"
]


class StatedAttention(Partial):
    """As a plan states it."""

    attention: Value | None = Field(
        default=None,
        description="attention kernel; flash is the one that Transformer Engine and torch take (cuDNN on "
        "Hopper, the fastest elsewhere), flash-mx8 cuDNN's over queries, keys and values in MXFP8 "
        "(fp8_dot_product_attention), flash-3 FlashAttention-3, which runs on Hopper alone, flash-torch "
        "what torchtitan takes: FlashAttention-2, and cuDNN's kernel on Blackwell",
    )


@chosen
class ChosenAttention:
    """As a release does it."""

    attention: Value = "flash"


LEVER = Lever("attention")
