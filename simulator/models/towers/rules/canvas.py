"""The image is shrunk to a longest side, and each row of tokens ends with a separator (Pixtral)."""

import math
from typing import Literal

from pydantic import Field

from core.loading import Strict
from simulator.models.towers.rules.base import Picture, Shape


class Canvas(Strict):
    """Source: transformers 5.24, image_processing_pixtral.py (get_resize_output_image_size)."""

    kind: Literal["canvas"] = "canvas"
    patch: int = Field(gt=0, le=4096)
    merge: int = Field(1, gt=0, le=64)
    longest: int = Field(gt=0, le=2**16, description="pixels of the longest side")

    def shape(self, picture: Picture) -> Shape:
        """A sequence a frame; a token for each merged patch, and one at the end of each row."""
        unit = self.patch * self.merge
        shrink = max(picture.height / self.longest, picture.width / self.longest, 1.0)
        rows, columns = (
            max(math.ceil(math.floor(side / shrink) / unit), 1) for side in (picture.height, picture.width)
        )
        return Shape(
            picture.frames, rows * self.merge, columns * self.merge, picture.frames * rows * (columns + 1)
        )
