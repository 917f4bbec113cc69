"""Images of a request, or of a sequence that is trained on, and clips of sound, as they are written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from core.loading import Strict
from simulator.models.towers.rules import Clip, Picture

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


HEARD = re.compile(r"(?:(\d{1,6})x)?(\d{1,6}(?:\.\d{1,6})?)s?")
"""``2x30``: two clips of 30 s; ``12.5s``."""


class Clips(Strict):
    """Clips of sound of one length."""

    count: int = Field(1, ge=1, le=4096, description="clips of this length")
    seconds: float = Field(gt=0, le=86_400, description="of each")

    def __str__(self) -> str:
        """As `HEARD` reads it."""
        return f"{self.count}x{self.seconds:g}"

    @property
    def picture(self) -> Clip:
        """One of them."""
        return Clip(self.seconds)


def _heard(value: object) -> object:
    """A text, a number, a mapping or a list of them as a list of mappings."""
    items = value if isinstance(value, list | tuple) else [value]
    return [_clip(item) for item in items]


def _clip(value: object) -> Any:
    if isinstance(value, Clips | Mapping):
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    written = HEARD.fullmatch(str(value).strip()) if number or isinstance(value, str) else None
    if written is None:
        raise ValueError("must be COUNTxSECONDS (2x30), seconds, or a mapping with seconds")
    count, seconds = written.groups()
    return {"count": int(count or 1), "seconds": float(seconds)}


AnyClips = Annotated[list[Clips], BeforeValidator(_heard), Field(max_length=64)]
"""Clips of a request, the same for all."""
AnyImages = Annotated[list[Images], BeforeValidator(_listed), Field(max_length=64)]
"""Pictures of a request or sequence, the same for all."""
