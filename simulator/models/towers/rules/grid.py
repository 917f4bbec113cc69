"""The image is resized to a grid of whole merged patches within limits of pixels (Qwen-VL, GLM-V, Kimi)."""

import math
from typing import Annotated, Literal

from pydantic import Field

from core.loading import Strict
from simulator.models.towers.rules.base import Picture, Shape

Pixels = Annotated[int, Field(gt=0, le=2**36)]


class PixelGrid(Strict):
    """Sides are multiples of ``patch x merge``; an image beyond the limits keeps its proportions.

    Source: transformers 5.24, image_processing_qwen2_vl.py (smart_resize) and, for ``padded``,
    image_processing_kimi_k25.py (navit_resize: the scaled image is padded to whole merged patches).
    """

    kind: Literal["grid"] = "grid"
    patch: int = Field(gt=0, le=4096)
    merge: int = Field(2, gt=0, le=64)
    temporal: int = Field(1, gt=0, le=64, description="frames that one patch spans")
    least: Pixels = Field(1, description="pixels of the smallest image")
    most: Pixels = Field(2**34, description="pixels of the largest image")
    most_of_frame: Pixels | None = Field(None, description="pixels of the largest frame; default: `most`")
    padded: bool = Field(False, description="whether the scaled image is padded instead of rounded")

    def shape(self, picture: Picture) -> Shape:
        """One sequence a frame group; a token for each merged patch."""
        unit, height, width = self.patch * self.merge, picture.height, picture.width
        most_pixels = self.most_of_frame if picture.frames > 1 and self.most_of_frame else self.most
        if self.padded:
            counted = max(height // self.patch, 1) * max(width // self.patch, 1) * self.patch**2
            scale = min(1.0, math.sqrt(most_pixels / counted))
            rows, columns = (max(math.ceil(int(side * scale) / unit), 1) for side in (height, width))
        else:
            rows, columns = (max(round(side / unit), 1) for side in (height, width))
            if rows * columns * unit**2 > most_pixels:
                shrink = math.sqrt(height * width / most_pixels)
                rows, columns = (max(math.floor(side / shrink / unit), 1) for side in (height, width))
            elif rows * columns * unit**2 < self.least:
                grow = math.sqrt(self.least / (height * width))
                rows, columns = (math.ceil(side * grow / unit) for side in (height, width))
        groups = math.ceil(picture.frames / self.temporal)
        return Shape(groups, rows * self.merge, columns * self.merge, groups * rows * columns)
