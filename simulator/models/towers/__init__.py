"""Vision towers of models; readers of ``config.json`` files, one file a family, lie in ``families``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from core.cache import read_shipped
from simulator.models.towers.rules import Picture, Shape
from simulator.models.towers.tower import Projection, Tower

__all__ = ["Picture", "Projection", "Shape", "Tower", "published_names", "published_tower"]


@cache
def _published() -> Mapping[str, Any]:
    return read_shipped(Path(__file__).with_name("published.yaml"))["towers"]


def published_names() -> list[str]:
    """Starts of the names of published models whose tower is known."""
    return list(_published())


@cache
def published_tower(name: str) -> Tower | None:
    """The tower of a published model of the catalogue, by its name without the maker; None: none known."""
    short = name.rpartition("/")[2].lower()
    start = next((start for start in _published() if short.startswith(start)), None)
    if start is None:
        return None
    # Few models have a tower; its readers are many files.
    from simulator.models.huggingface_rules import Config
    from simulator.models.towers.families import read_tower

    return read_tower(Config(_published()[start], f"published.yaml: {start}"), start)
