"""Tiers of KV below device memory, as a deployment states them."""

from __future__ import annotations

from pydantic import Field

from hwmodels.loading import Strict
from simulator.serving.question.places import Place


class Tier(Strict):
    """One tier."""

    place: Place = Field(description="host, nvme or remote; remote is shared by all replicas of a pool")
    gigabytes: float = Field(gt=0, le=1e9, description="size, of one replica; of remote in all")
