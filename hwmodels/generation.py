"""A generation of devices: what its devices share beside their figures, each fact with its source.

Software and physics that no data sheet states: which kernels exist for it, what power follows from, how much
kernels lose beside an exchange. A new generation is one file, or a mapping in a device's file, that is based
on another and states what differs.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationInfo, model_validator

from core.errors import UnknownNameError, suggestion
from core.loading import Catalogue, looks_like_path
from core.quantities import Positive
from core.sources import Sourced

Share = Annotated[float, Field(ge=0, le=1)]
NAMES = ("name", "based_on")
"""Keys that are no facts."""


class Generation(Sourced):
    """One generation. What a file leaves out is that of the generation that it is based on."""

    name: str
    based_on: str | None = None
    """Shipped generation whose facts hold where this one states none."""
    cold_operands: Annotated[float, Field(ge=1)]
    """Time of a product with operands and result in memory, as in a training step, over that with
    activations in the cache, as in a benchmark."""
    exchange_slowdown: Share
    """Share of their speed that kernels lose beside an exchange with experts that leaves its domain of links,
    where that is more than beside other collectives."""
    power_shares: Annotated[list[Annotated[float, Field(ge=0)]], Field(min_length=3, max_length=3)]
    """Shares of (limit - idle): any kernel runs, memory at peak bandwidth, matrix units at peak. Power grows
    with the root of the use of the matrix units, as clocks fall towards the limit."""
    slower_hosts: Annotated[float, Field(ge=1)]
    """Launch time on the hosts of its nodes over that on hosts of H100 nodes, in eager serving steps."""
    older_attention: dict[str, Annotated[list[Positive], Field(min_length=2, max_length=2)]]
    """Speed of older attention kernels over the fastest, by version: heads of up to 64 and of more."""
    lane_bytes: Positive
    """Bytes that a lane loads at once at the full rate of the first cache."""
    launches_ahead: bool
    """Whether the host launches kernels while the device runs others."""
    deepgemm: bool
    """Whether DeepGEMM has kernels for its data-center devices."""
    packed_scales: bool
    """Whether block-scaled products want their scales packed."""
    attention_sinks: bool
    """Whether its attention kernels have sinks."""
    mxfp4_triton: bool
    """Whether engines may run experts of MXFP4 in Triton."""
    grouped_mxfp8: bool
    """Whether Transformer Engine's grouped MLP multiplies MXFP8 on it."""
    flex_dispatcher: bool
    """Whether libraries of Megatron Core's flex dispatcher run on it."""
    many_connections: bool
    """Whether Megatron-LM does without CUDA_DEVICE_MAX_CONNECTIONS=1 under tensor or context parallelism."""
    fused_attention: bool
    """Whether FlashAttention or cuDNN's fused attention has a kernel for it."""
    fp8_layouts: Literal[1, 2]
    """Copies of a weight that fp8 products with one scale a tensor read: 2 where one must be transposed."""
    kubernetes: str
    """Resource of its devices in Kubernetes."""

    @model_validator(mode="before")
    @classmethod
    def _borrow(cls, data: object) -> object:
        """Fill in the facts of the generation that this one is based on."""
        if not isinstance(data, Mapping):
            return data
        base = data.get("based_on")
        if base is None:
            unsaid = [name for name in cls.model_fields if name not in (*NAMES, *data)]
            if unsaid:
                raise ValueError(
                    f"{data.get('name', 'the generation')} leaves {', '.join(unsaid)} unsaid; state them, or "
                    f"the generation that it is `based_on`: {', '.join(generations.names())}"
                )
            return data
        if not isinstance(base, str) or base not in generations.names():
            raise ValueError(str(UnknownNameError("generation", str(base), generations.names(), "based_on")))
        facts = generations.get(base)
        return {**{name: getattr(facts, name) for name in cls.model_fields if name not in NAMES}, **data}

    @property
    def lineage(self) -> tuple[str, ...]:
        """Its name and those of the generations that it is based on, the nearest first."""
        return (self.name, *(generations.get(self.based_on).lineage if self.based_on else ()))

    def older(self, version: str) -> tuple[float, float]:
        """Speed of a version's attention over the fastest, of heads of up to 64 and of more."""
        narrow, wide = self.older_attention.get(version, (1.0, 1.0))
        return narrow, wide


class Generations(Catalogue[Generation]):
    """The generations by name."""

    def find(self, value: object, info: ValidationInfo) -> object:
        """The generation that a name, path or mapping means, for validators of fields; raises as `get`."""
        unknown = isinstance(value, str) and not looks_like_path(value) and self.resolve(value) is None
        if unknown:
            raise ValueError(
                f"no generation is called {value!r}; a new one says what it is like, "
                f"{{name: {value}, based_on: blackwell}}{suggestion(str(value), self.names())}"
            )
        return super().find(value, info)


generations = Generations("generation", Path(__file__).parent / "generations", Generation)
