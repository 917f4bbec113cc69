"""A published offload system: the tiers, the update and the sharding that it stands for."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from core.loading import Catalogue, Strict
from simulator.state.place import Tiers, Update


class OffloadSystem(Strict):
    """One system as the plan fields that it sets; a plan's own fields replace them."""

    name: str
    title: str = Field(description="what it does, in one line")
    source: str = Field(description="paper or documentation")
    zero: int | None = Field(None, ge=0, le=3, description="ZeRO stage that it runs on; empty: any")
    place: Tiers = Field(description="where classes of state lie")
    update: Update = Field(Update.model_validate({}), description="where and when the optimizer runs")
    missing: str = Field("", description="what of the system the fields do not express")


offload_systems = Catalogue("offload system", Path(__file__).parent, OffloadSystem)
