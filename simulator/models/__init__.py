"""Transformer architectures: ``Model``, the catalogue, and readers of Hugging Face configurations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from core.errors import InputError
from core.loading import SUFFIXES, Catalogue, build, exists, looks_like_path, read_mapping
from core.parsing import check_plain
from simulator.models.checkpoints import format_of_name
from simulator.models.linear_attention import LinearAttention
from simulator.models.model import VISION, Model
from simulator.models.parts import AttentionShape, LatentAttention, LayerKind, MixtureOfExperts
from simulator.models.towers import published_tower

__all__ = [
    "AttentionShape",
    "LatentAttention",
    "LayerKind",
    "LinearAttention",
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
        spellings = {_squeezed(name): name for name in self.names()}
        for name in self.names():
            for alias in self.definition(name).get("aliases", ()):
                spellings.setdefault(_squeezed(alias), name)
        return spellings

    def resolve(self, name: str) -> str | None:
        """Return the catalogue name that a name means, or none.

        Words for tuning, formats and dates are dropped if the full name is unknown.
        """
        if (listed_name := super().resolve(name)) is not None or name.endswith(SUFFIXES):
            return listed_name
        short = name.rstrip("/").rpartition("/")[2].lower()
        shape = NOT_SHAPE.sub("", short)
        spellings = (short, shape, REVISION.sub("", shape))
        return next((self._spellings[s] for s in map(_squeezed, spellings) if s in self._spellings), None)

    def get(self, reference: str | Path | Mapping[str, Any], where: str = "") -> Model:
        """Return the model that a name, a YAML or ``config.json`` path, a folder or a mapping means.

        Raises:
            UnknownNameError: no such name (nearest one offered).
            InputError: the file or the definition is wrong.
        """
        if isinstance(reference, Mapping):
            return super().get(reference, where)
        if not self._is_path(reference):
            return self._published(super().get(reference, where), str(reference))
        # Most questions name a model of the catalogue.
        from simulator.models.huggingface import config_path, looks_like_config, read_config

        path = config_path(Path(reference))
        data = read_mapping(path, bounded=False)
        if path.name == "config.json" or looks_like_config(data):
            return read_config(path, data)
        check_plain(data, str(path))
        if {"dim", "n_layers"} <= data.keys():
            raise InputError("is Mistral's params.json; give the config.json of the same model", str(path))
        return build(Model, data, str(path))

    def _published(self, model: Model, name: str) -> Model:
        """A model in the format of the checkpoint that a name means: a listed one, or one that says it."""
        short = _squeezed(name.rpartition("/")[2])
        listed = (
            stored
            for stored, names in model.checkpoints.items()
            if short in map(_squeezed, _short_names(names))
        )
        stored = next(listed, None) or format_of_name(name)
        update: dict[str, Any] = {} if stored in (None, model.checkpoint) else {"checkpoint": stored}
        tower = published_tower(name)
        if tower is not None:
            update["tower"] = tower
            # A name of its own: files and answers under the language model's have no tower.
            named = (each for each in model.aliases if _squeezed(short).startswith(_squeezed(each)))
            update["name"] = max(named, key=len, default=model.name)
        if (tower is not None or SEES.search(name.lower())) and not model.left_out:
            update["left_out"] = VISION
        return model.model_copy(update=update) if update else model

    def _is_path(self, reference: str | Path) -> bool:
        if isinstance(reference, Path):
            return True
        if reference in self.names():
            return False
        if exists(Path(reference)):
            return True
        return looks_like_path(reference) and self.resolve(reference) is None


NOT_SHAPE = re.compile(
    r"(?<![a-z0-9])(nvidia|meta(?=-llama)|instruct|chat|thinking|base|it|pt|hf|preview|hybrid|dynamic|quantized"
    r"|(nvfp4|mxfp4|fp4)(-v\d)?|fp8|bf16|fp16|int4|int8|awq|gptq|w4a16|w8a8)(?![a-z0-9])"
)
"""Words of a Hugging Face name for vendor, tuning and weight format; they do not affect shapes."""

SEES = re.compile(r"(?<![a-z0-9])(vl|vision|omni|kimi-k2\.[56])(?![a-z0-9])")
"""Words of a name whose model has a vision encoder beside the language model of the catalogue."""

REVISION = re.compile(r"[-_](\d{4}|v\d+(\.\d+)+)(?=[-_]|$)")
"""A date or a version of weights of one shape: -0528, -2507, -v0.1."""


def _short_names(names: list[str]) -> list[str]:
    """Names without their organisation."""
    return [name.rpartition("/")[2] for name in names]


def _squeezed(name: str) -> str:
    """A name's letters, digits and points: opt-1.3b is not opt-13b."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


models = ModelCatalogue("model", Path(__file__).parent / "catalogue", Model)
