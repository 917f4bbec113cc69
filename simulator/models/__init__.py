"""Transformer architectures: the noun, its catalogue, and readers of others' descriptions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hwmodels.loading import Catalogue, build, exists, looks_like_path, read_mapping
from simulator.models.huggingface import config_path, looks_like_config, read_config
from simulator.models.linear_attention import LinearAttention
from simulator.models.model import Model
from simulator.models.parts import LatentAttention, LayerKind, LayerParameters, Matrix, MixtureOfExperts

__all__ = [
    "LatentAttention",
    "LayerKind",
    "LayerParameters",
    "LinearAttention",
    "Matrix",
    "MixtureOfExperts",
    "Model",
    "models",
]


class ModelCatalogue(Catalogue[Model]):
    """The catalogue of models; a reference may also be a Hugging Face ``config.json`` or its folder."""

    def get(self, reference: str | Path | Mapping[str, Any], where: str = "") -> Model:
        """Return the model that a name, a YAML or ``config.json`` path, a folder or a mapping means.

        Raises:
            UnknownNameError: no such name (nearest one offered).
            InputError: the file or the definition is wrong.
        """
        if isinstance(reference, Mapping) or not self._is_path(reference):
            return super().get(reference, where)
        path = config_path(Path(reference))
        data = read_mapping(path)
        if path.name == "config.json" or looks_like_config(data):
            return read_config(path, data)
        return build(Model, data, str(path))

    def _is_path(self, reference: str | Path) -> bool:
        if isinstance(reference, Path):
            return True
        return reference not in self.names() and (looks_like_path(reference) or exists(Path(reference)))


models = ModelCatalogue("model", Path(__file__).parent / "catalogue", Model)
