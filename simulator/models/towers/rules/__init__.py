"""Tokens of an image by the rule of its model: one file a rule, found through ``AnyRule``."""

from typing import Annotated

from pydantic import Field

from simulator.models.towers.rules.base import Clip, Picture, Shape
from simulator.models.towers.rules.budget import TokenBudget
from simulator.models.towers.rules.canvas import Canvas
from simulator.models.towers.rules.clips import ClipFrames
from simulator.models.towers.rules.fixed import Fixed
from simulator.models.towers.rules.grid import PixelGrid
from simulator.models.towers.rules.tiles import Tiles

AnyRule = Annotated[
    PixelGrid | Canvas | Tiles | Fixed | TokenBudget | ClipFrames, Field(discriminator="kind")
]
"""A rule by its ``kind``."""

__all__ = ["AnyRule", "Clip", "ClipFrames", "Picture", "Shape"]
