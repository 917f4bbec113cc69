"""The image is cut into square tiles, with a thumbnail beside them (InternVL, Llama 4)."""

import math
from typing import Literal

from pydantic import Field

from core.loading import Strict
from simulator.models.towers.rules.base import Picture, Shape


class Tiles(Strict):
    """A grid of at most ``most`` tiles whose proportions are closest to the image's.

    Source: OpenGVLab/InternVL, internvl/train/dataset.py (dynamic_preprocess: closest ratio; of equal ones
    the larger where the image has more than half of its pixels); transformers 5.24,
    image_processing_llama4.py (get_best_fit: the smallest grid that needs no shrinking, else the largest
    that shrinks least).
    """

    kind: Literal["tiles"] = "tiles"
    patch: int = Field(gt=0, le=4096)
    tile: int = Field(gt=0, le=2**14, description="pixels of a tile's side")
    merge: int = Field(2, gt=0, le=64)
    most: int = Field(12, gt=0, le=1024, description="tiles of an image, its thumbnail not counted")
    fits: Literal["ratio", "scale"] = Field("ratio", description="rule that picks the grid of tiles")
    separators: int = Field(0, ge=0, le=64, description="tokens around an image")
    tile_separators: int = Field(0, ge=0, le=64, description="tokens beside each of several tiles")

    def shape(self, picture: Picture) -> Shape:
        """A sequence a tile; frames of a video are one tile each."""
        side = self.tile // self.patch
        per_tile = (side // self.merge) ** 2
        if picture.frames > 1:
            return Shape(picture.frames, side, side, picture.frames * (per_tile + self.separators))
        rows, columns = self._ratio(picture) if self.fits == "ratio" else self._scale(picture)
        tiles = rows * columns
        sequences = tiles + 1 if tiles > 1 else 1
        between = self.tile_separators * tiles if tiles > 1 else 0
        return Shape(sequences, side, side, sequences * per_tile + self.separators + between)

    def _grids(self) -> list[tuple[int, int]]:
        """Rows and columns of grids, the smallest first."""
        grids = {(r, c) for r in range(1, self.most + 1) for c in range(1, self.most // r + 1)}
        return sorted(grids, key=lambda grid: (grid[0] * grid[1], grid))

    def _ratio(self, picture: Picture) -> tuple[int, int]:
        ratio, area = picture.width / picture.height, picture.width * picture.height
        closest, best = math.inf, (1, 1)
        for rows, columns in self._grids():
            distance = abs(ratio - columns / rows)
            larger = area > 0.5 * self.tile**2 * rows * columns
            if distance < closest or (distance == closest and larger):
                closest, best = distance, (rows, columns)
        return best

    def _scale(self, picture: Picture) -> tuple[int, int]:
        def scale(grid: tuple[int, int]) -> float:
            return min(grid[1] * self.tile / picture.width, grid[0] * self.tile / picture.height)

        grids = self._grids()
        enough = [grid for grid in grids if scale(grid) >= 1.0]
        best_scale = min(scale(grid) for grid in enough) if enough else max(scale(grid) for grid in grids)
        return next(grid for grid in grids if scale(grid) == best_scale)
