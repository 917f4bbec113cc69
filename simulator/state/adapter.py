"""Low-rank adapters on a frozen model (LoRA, QLoRA)."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field

from core.loading import Strict

AdapterTarget = Literal["attention", "query_key_value", "mlp", "experts"]
BaseFormat = Literal["fp32", "bf16", "fp8", "mxfp8", "nvfp4", "int8", "nf4"]

PARTS: Mapping[str, str] = MappingProxyType({"projections": "attention", "mlp": "mlp", "routed": "experts"})
"""Targets by the part of a layer that their products belong to; other targets name their product."""

BASE_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "fp32": 4.0,
        "bf16": 2.0,
        "fp8": 1.0,
        "mxfp8": 2 * (1 + 1 / 32),
        "nvfp4": 2 * (0.5 + 1 / 16),
        "int8": 1.0 + 4 / 64,
        "nf4": 0.5 + 1 / 64 + 4 / (64 * 256),
    }
)
"""Bytes of a frozen parameter: NF4 has an 8-bit scale per 64 weights and a 32-bit one per 256 of these
(Dettmers et al. 2023, QLoRA, section 3, double quantisation); int8 a 32-bit scale per 64. Formats with scales
of blocks keep weights twice, in blocks of rows for the outputs and of columns for the inputs' gradients
(Transformer Engine, MXFP8Tensor and NVFP4Tensor: rowwise and columnwise data)."""

TABLE_BYTES: Mapping[str, float] = MappingProxyType({"nf4": 4.0, "int8": 4.0})
"""Bytes of a parameter of the model's ends where layers have this format; others train in 16 bits. PEFT casts
what bitsandbytes does not code to 32 bits (peft, utils/other.py: prepare_model_for_kbit_training)."""

MULTIPLIED: tuple[BaseFormat, ...] = ("fp8", "mxfp8", "nvfp4")
"""Narrow formats that products read as they are, where they run in them."""

WORKING = 2.0
"""Bytes of a weight as products read it."""


class Adapter(Strict):
    """Adapters of rank ``rank`` beside the products of ``targets``; all other parameters are frozen."""

    rank: int = Field(ge=1, le=2**16, description="rank of an adapter's two factors")
    targets: Annotated[list[AdapterTarget], Field(min_length=1)] = Field(
        ["attention", "mlp"],
        description="products that have adapters; query_key_value: of attention's that one alone",
    )
    base: BaseFormat = Field(
        "bf16",
        description="format of the frozen parameters; decoded before each product that runs in another one",
    )
    dropout: bool = Field(False, description="a dropout of the input of each adapter (lora_dropout above 0)")

    def is_coded(self, dtype: str) -> bool:
        """Whether products of a number format decode the frozen weights first."""
        return self.base not in ("fp32", "bf16", dtype)
