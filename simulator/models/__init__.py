"""Transformer architectures: the noun, its catalogue, and readers of others' descriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from hwmodels.loading import SUFFIXES, Catalogue, build, exists, looks_like_path, read_mapping
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
    """The catalogue of models; a reference may also be a Hugging Face ``config.json`` or its folder.

    Names are found as Hugging Face and people write them: ``meta-llama/Llama-3.1-70B-Instruct``.
    """

    @cached_property
    def _spellings(self) -> dict[str, str]:
        return {_squeezed(name): name for name in self.names()}

    def resolve(self, name: str) -> str | None:
        """Return the catalogue name that a name means, or none."""
        return super().resolve(name) or self._spellings.get(_squeezed(name))

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
        if reference in self.names():
            return False
        if exists(Path(reference)):
            return True
        return looks_like_path(reference) and self.resolve(reference) is None


TUNED = re.compile(r"[-_](hf|base|it|instruct|chat|v0\.[0-9]|preview|[0-9]{4})$")
"""Ends of a Hugging Face name that say how weights were trained, not what shape they have."""


def _squeezed(name: str) -> str:
    """A name without organisation, endings of tuned weights, and what separates its parts."""
    if name.endswith(SUFFIXES):
        return name
    short = name.rpartition("/")[2].lower().removeprefix("meta-")
    while (cut := TUNED.sub("", short)) != short:
        short = cut
    return re.sub(r"[\s_-]+", "", short)


models = ModelCatalogue("model", Path(__file__).parent / "catalogue", Model)
