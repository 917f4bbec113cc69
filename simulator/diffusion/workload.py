"""The keys of a diffusion workload."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from core.loading import Strict

KIND = "diffusion"
Pixels = Annotated[int, Field(ge=1, le=2**16)]


class DiffusionWorkload(Strict):
    """One batch of images or videos."""

    kind: Literal["diffusion"] = Field(description="says that the question is one of diffusion")
    height: Pixels = Field(1024, description="pixels")
    width: Pixels = Field(1024, description="pixels")
    frames: Annotated[int, Field(ge=1, le=2**16)] = Field(1, description="frames of a video")
    steps: Annotated[int, Field(ge=1, le=10_000)] | None = Field(
        None, description="calls of the sampler; default: those of the model's pipeline"
    )
    batch: Annotated[int, Field(ge=1, le=2**16)] = Field(1, description="prompts that run together")
    guidance: bool | None = Field(
        None, description="whether each step has a call without the prompt; default: as the model has"
    )
    skipped: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of steps whose output is taken from a cache (TeaCache: what it reports)"
    )
    encoded: bool = Field(
        True, description="whether text encoders run for each batch; false: once for many images"
    )
