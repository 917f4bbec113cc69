"""Diffusion models: the catalogue, and a diffusers folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.loading import Catalogue, exists
from simulator.diffusion.models.folder import INDEX, read_folder
from simulator.diffusion.models.model import BlockGroup, DiffusionModel, LatentDecoder, TextEncoder

__all__ = ["BlockGroup", "DiffusionModel", "LatentDecoder", "TextEncoder", "diffusion_models"]


class DiffusionCatalogue(Catalogue[DiffusionModel]):
    """The catalogue; a reference may also be a folder with a ``model_index.json``."""

    def resolve(self, name: str) -> str | None:
        """The catalogue name that a name means: its own, or an alias without the maker."""
        if (resolved := super().resolve(name)) is not None:
            return resolved
        short = name.rpartition("/")[2].lower()
        for entry in self.names():
            if short in (entry, *(alias.lower() for alias in self.definition(entry).get("aliases", ()))):
                return entry
        return None

    def get(self, reference: str | Path | Mapping[str, Any], where: str = "") -> DiffusionModel:
        """The model that a name, a YAML path, a diffusers folder or a mapping means.

        Raises:
            UnknownNameError: no such name.
            InputError: the file or the definition is wrong.
        """
        if isinstance(reference, str | Path):
            path = Path(reference)
            if path.name == INDEX or (exists(path) and (path / INDEX).is_file()):
                return read_folder(path.parent if path.name == INDEX else path)
        return super().get(reference, where)


diffusion_models = DiffusionCatalogue("diffusion model", Path(__file__).parent / "catalogue", DiffusionModel)
