"""Images of a request, or of a sequence that is trained on, as they are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from core.loading import Strict
from simulator.models.towers.rules import Picture

WRITTEN = re.compile(r"(?:(\d{1,6})x)?(\d{1,6})x(\d{1,6})(?:@(\d{1,6}))?")
"""``2x1280x720``: two images; ``1280x720@16``: a video of 16 frames."""


class Images(Strict):
    """Pictures of one size."""

    count: int = Field(1, ge=1, le=4096, description="pictures of this size")
    width: int = Field(ge=1, le=2**16, description="pixels")
    height: int = Field(ge=1, le=2**16, description="pixels")
    frames: int = Field(1, ge=1, le=2**16, description="frames that are encoded; above 1 it is a video")

    def __str__(self) -> str:
        """As `WRITTEN` reads it: ``2x1280x720@16``."""
        return f"{self.count}x{self.width}x{self.height}" + (f"@{self.frames}" if self.frames > 1 else "")

    @property
    def picture(self) -> Picture:
        """One of them."""
        return Picture(self.width, self.height, self.frames)


def _listed(value: object) -> object:
    """A text, a mapping or a list of them as a list of mappings."""
    return [_mapped(item) for item in value] if isinstance(value, list | tuple) else [_mapped(value)]


def _mapped(value: object) -> Any:
    if isinstance(value, Images | Mapping):
        return value
    written = WRITTEN.fullmatch(value.strip()) if isinstance(value, str) else None
    if written is None:
        raise ValueError(
            "must be COUNTxWIDTHxHEIGHT (2x1280x720; a video of 16 frames: 1280x720@16), or a mapping with "
            "width and height"
        )
    names = ("count", "width", "height", "frames")
    numbers = zip(names, written.groups(), strict=True)
    return {name: int(number) for name, number in numbers if number is not None}


AnyImages = Annotated[list[Images], BeforeValidator(_listed), Field(max_length=64)]
"""Pictures of a request or sequence, the same for all."""
