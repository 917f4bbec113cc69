"""Training workload: sequences, batch, number format and optimizer."""

from typing import Any, Literal, TypeVar

from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from core.loading import Strict
from simulator.state.adapter import Adapter

Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]

Count = TypeVar("Count", int, NDArray)
"""A count of one plan, or of many, shape (plans,)."""

ACTIVATION_BYTES = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 2, "mxfp8": 2, "nvfp4": 2}
"""Bytes of one activation or working parameter; fp8 and fp4 exist only as inputs of matrix products."""


class Training(Strict):
    """A training workload."""

    seq_len: int = Field(gt=0, le=2**27, description="tokens in a sequence")
    global_batch: int = Field(gt=0, le=2**24, description="sequences in an optimizer step")
    precision: Precision = Field("bf16", description="number format of the matrix products")
    causal: bool = Field(True, description="whether attention looks back only")
    expert_load: float = Field(
        1.0,
        ge=1,
        le=1000,
        description="routed tokens of the busiest expert-parallel rank over the mean; 1 in benchmarks that "
        "balance tokens by force, 1.06 with an auxiliary loss (Mixtral 8x22B, Megatron MoE ModelZoo), 1.3 to "
        "4.0 in runs without balancing (UltraEP, arXiv 2606.04101)",
    )
    dropout: bool | None = Field(
        None, description="dropout after attention and MLP; default: what the framework does"
    )

    adapter: Adapter | None = Field(
        None, description="low-rank adapters; the model's own parameters are then frozen"
    )

    @model_serializer(mode="wrap")
    def _without_unused(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A workload without adapters is written as before they existed."""
        written = write(self)
        return {key: value for key, value in written.items() if value is not None or key != "adapter"}

    @property
    def tokens(self) -> int:
        """Tokens in an optimizer step."""
        return self.seq_len * self.global_batch

    def micro_batches(self, data: Count, micro_batch: Count) -> Count:
        """Micro batches of one of ``data`` replicas in a step (gradient accumulation), rounded down.

        Rules refuse plans whose batch does not divide.
        """
        return self.global_batch // (data * micro_batch)

    @property
    def activation_bytes(self) -> int:
        """Bytes of one activation element."""
        return ACTIVATION_BYTES[self.precision]

    @property
    def mixed(self) -> bool:
        """Whether the optimizer holds a 32-bit master copy of the parameters."""
        return self.activation_bytes < 4
