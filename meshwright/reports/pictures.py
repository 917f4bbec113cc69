"""Pictures or clips of a request, and the tower that encodes them, in words."""

from __future__ import annotations

from meshwright.reports.units import counted
from simulator.models.towers.pictures import Pictures
from simulator.ops.tower import tower_parameters


def pictures_key(pictures: Pictures) -> str:
    """What the tower encodes, as the workload names it."""
    return "audio" if pictures.tower.hears else "images"


def pictures_words(pictures: Pictures) -> str:
    """Pictures and their tokens of a request, and the tower."""
    return (
        f"{pictures.count} a request, {pictures.tokens:,} tokens; tower {pictures.tower.name}, "
        f"{counted(tower_parameters(pictures.tower))} parameters"
    )


def searched_pictures(pictures: Pictures | None) -> dict[str, str]:
    """The row of a search on the pictures of its requests; empty without any."""
    if pictures is None:
        return {}
    place = "in the prompts' steps; the host's time for a picture is that of the engine's `picture_s`"
    return {pictures_key(pictures): f"{pictures_words(pictures)}, {place}"}
