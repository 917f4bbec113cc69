"""Tiers of KV below device memory, as a deployment states them."""

from __future__ import annotations

from pydantic import Field

from core.loading import Strict
from simulator.serving.question.places import Place


class Tier(Strict):
    """One tier.

    A tier that states `recompute` shares its links: reads and writes of all replicas that use them take their
    part. A tier that does not has a link of its own, and its writes take no time.
    """

    place: Place = Field(description="host, nvme or remote; remote is shared by all replicas of a pool")
    gigabytes: float = Field(gt=0, le=1e9, description="size, of one replica; of remote in all")
    recompute: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="share of the tokens read that is computed again (CacheBlend: 0.15, APE: 0); stated for "
        "one tier, the tiers share links and writes take time",
    )
    block_bytes: float | None = Field(
        default=None, ge=256, le=1e9, description="bytes of one copy, with `recompute`; default: the engine's"
    )
