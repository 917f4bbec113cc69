"""Every image has one size and one number of tokens (Gemma 3)."""

from typing import Literal

from pydantic import Field

from core.loading import Strict
from simulator.models.towers.rules.base import Picture, Shape


class Fixed(Strict):
    """The image is resized to a square, whatever its proportions."""

    kind: Literal["fixed"] = "fixed"
    patch: int = Field(gt=0, le=4096)
    image: int = Field(gt=0, le=2**14, description="pixels of a side")
    tokens: int = Field(gt=0, le=2**20)
    separators: int = Field(0, ge=0, le=64, description="tokens around an image")

    def shape(self, picture: Picture) -> Shape:
        """A sequence a frame."""
        side = self.image // self.patch
        return Shape(picture.frames, side, side, picture.frames * (self.tokens + self.separators))
