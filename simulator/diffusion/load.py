"""Prompts that arrive over time at replicas of a diffusion model."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from core.loading import Strict
from simulator.serving.workload.arrivals import AnyArrivals

MOST_PROMPTS = 1_000_000
"""Of a run."""


class DiffusionLoad(Strict):
    """Arrivals, and how a replica batches them."""

    arrivals: AnyArrivals = Field(description="when prompts arrive")
    requests: Annotated[int, Field(ge=1, le=MOST_PROMPTS)] = Field(400, description="prompts to simulate")
    batching: Literal["batches", "steps"] = Field(
        "batches",
        description="batches: a free replica takes the waiting prompts, at most workload.batch, to the end; "
        "steps: prompts join and leave at every step (equal iterations)",
    )
    similar: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="share of frames so like the one before that its image is shown again, at no cost "
        "(StreamDiffusion's stochastic similarity filter: what it reports)",
    )
    latency: Annotated[float, Field(gt=0, le=1e7)] | None = Field(None, description="target of a prompt, s")
    share: Annotated[float, Field(gt=0, le=1)] = Field(0.9, description="share of prompts that must meet it")

    @model_validator(mode="after")
    def _open(self) -> DiffusionLoad:
        if self.arrivals.closed:
            raise ValueError("arrivals: prompts come in an open loop; allowed: all kinds but closed")
        return self
