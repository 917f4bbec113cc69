"""The image fills a number of tokens as its proportions allow; patches are padded to it (Gemma 4)."""

import math
from typing import Literal

from pydantic import Field

from core.loading import Strict
from simulator.models.towers.rules.base import Picture, Shape


class TokenBudget(Strict):
    """The largest grid of whole merged patches with the image's proportions within ``tokens``, up or down.

    Engines encode padded patches, so that every image takes the same time.

    Source: transformers 5.24, image_processing_gemma4.py (get_aspect_ratio_preserving_size, padding);
    vLLM, gemma4_mm.py (the tower runs on padded patches, 70 tokens a frame; tokens are the real ones).
    """

    kind: Literal["budget"] = "budget"
    patch: int = Field(gt=0, le=4096)
    merge: int = Field(3, gt=0, le=64)
    tokens: int = Field(280, gt=0, le=2**20, description="most tokens of an image")
    tokens_of_frame: int = Field(70, gt=0, le=2**20, description="most tokens of a frame of a video")
    separators: int = Field(0, ge=0, le=64, description="tokens around an image or a frame")

    def shape(self, picture: Picture) -> Shape:
        """A sequence of padded patches a frame; a token for each merged patch of the image."""
        budget = self.tokens if picture.frames == 1 else min(self.tokens, self.tokens_of_frame)
        unit = self.patch * self.merge
        scale = math.sqrt(budget * unit**2 / (picture.height * picture.width))
        rows, columns = (math.floor(scale * side / unit) for side in (picture.height, picture.width))
        if not rows:
            rows, columns = 1, min(picture.width // picture.height, budget)
        elif not columns:
            rows, columns = min(picture.height // picture.width, budget), 1
        tokens = picture.frames * (rows * columns + self.separators)
        return Shape(picture.frames, self.merge, budget * self.merge, tokens)
