"""Published systems as fault processes: one YAML file each, every rate with its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from core.loading import Catalogue, Strict
from simulator.faults.registry import AnyProcess

Evidence = Literal["exact_primary", "exact_quoted", "computed"]


class FaultPreset(Strict):
    """A published system's faults.

    ``evidence`` grades the weakest of its rates: read in the primary source, quoted by another text, or
    computed from data.
    """

    name: str
    aliases: list[str] = Field(default_factory=list)
    title: str
    source: str
    evidence: Evidence
    second_hand: bool = False
    """Whether a figure was read in another text than its own: no default rests on it."""
    notes: str = ""
    processes: Annotated[list[AnyProcess], Field(min_length=1)]


presets: Catalogue[FaultPreset] = Catalogue("fault preset", Path(__file__).parent / "presets", FaultPreset)
