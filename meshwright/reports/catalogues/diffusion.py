"""Diffusion models, the libraries that run them, and vision towers of published models."""

from __future__ import annotations

from collections import Counter
from typing import Any

from core.errors import UnknownNameError
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.units import counted
from simulator.diffusion.convolution import decoder_parameters
from simulator.diffusion.encoders import encoder_parameters
from simulator.diffusion.libraries import diffusion_libraries
from simulator.diffusion.models import DiffusionModel, diffusion_models
from simulator.diffusion.ops import transformer_parameters
from simulator.models.towers import Picture, Tower, published_names, published_tower
from simulator.ops.tower import tower_parameters

SHOWN = Picture(1280, 720)
"""Size whose tokens the list of towers shows."""


def _counts(model: DiffusionModel) -> Counter[str]:
    """Blocks by kind."""
    counts: Counter[str] = Counter()
    for blocks in model.blocks:
        counts[blocks.kind] += blocks.count
    return counts


def _model_brief(model: DiffusionModel) -> dict[str, Any]:
    counts = {
        "parameters": transformer_parameters(model),
        "decoder_parameters": decoder_parameters(model.decoder),
    }
    return {**model.model_dump(mode="json"), **counts}


def _about_model(model: DiffusionModel) -> dict[str, str]:
    encoders = ", ".join(f"{part.name} {counted(encoder_parameters(part))}" for part in model.encoders)
    stated = model.stated_parameters
    return {
        "transformer": f"{counted(transformer_parameters(model))} parameters"
        + (f" (published: {counted(stated)})" if stated else ""),
        "blocks": ", ".join(f"{count} {kind}" for kind, count in _counts(model).items()),
        "width": f"{model.hidden:,}, {model.heads} heads of {model.head_dim}",
        "text encoders": encoders,
        "decoder": f"{counted(decoder_parameters(model.decoder))} parameters, "
        f"{model.decoder.space} pixels a latent",
        "steps": f"{model.steps}, guidance {model.guidance}",
        "aliases": ", ".join(model.aliases),
        "source": model.source,
    }


MODELS = Kind(
    names=diffusion_models.names,
    get=diffusion_models.get,
    brief=_model_brief,
    cells={
        "model": lambda model: model.name,
        "makes": lambda model: "video" if model.video else "image",
        "blocks": lambda model: ", ".join(dict.fromkeys(blocks.kind for blocks in model.blocks)),
        "parameters": lambda model: counted(transformer_parameters(model)),
        "steps": lambda model: str(model.steps),
        "guidance": lambda model: model.guidance,
    },
    about=_about_model,
    text_columns=3,
)


LIBRARIES = Kind(
    names=diffusion_libraries.names,
    get=diffusion_libraries.get,
    cells={
        "library": lambda library: library.name,
        "what": lambda library: library.title,
        "launch, us": lambda library: f"{1e6 * library.launch_s:.1f}",
        "attention": lambda library: library.attention,
    },
    text_columns=2,
)


def _tower(name: str) -> Tower:
    """The tower of a published model.

    Raises:
        UnknownNameError: no such name.
    """
    tower = published_tower(name)
    if tower is None:
        raise UnknownNameError("vision tower", name, published_names())
    return tower


def _about_tower(tower: Tower) -> dict[str, str]:
    sizes = (Picture(640, 480), SHOWN, Picture(1920, 1080))
    tokens = (f"{size.width}x{size.height}: {tower.shape(size).tokens:,}" for size in sizes)
    return {
        "layers": f"{tower.layers} of {tower.hidden:,}, {tower.heads} heads, MLP {tower.feed_forward:,}",
        "parameters": f"{tower_parameters(tower):,}",
        "patch": f"{tower.patch} pixels, {tower.merge} x {tower.merge} to a token",
        "tokens": ", ".join(tokens),
    }


TOWERS = Kind(
    names=published_names,
    get=_tower,
    brief=lambda tower: {**tower.model_dump(mode="json"), "parameters": tower_parameters(tower)},
    cells={
        "tower of": lambda tower: tower.name,
        "rule": lambda tower: tower.rule.kind,
        "layers": lambda tower: f"{tower.layers} x {tower.hidden:,}",
        "parameters": lambda tower: counted(tower_parameters(tower)),
        "tokens of 1280x720": lambda tower: f"{tower.shape(SHOWN).tokens:,}",
    },
    about=_about_tower,
    text_columns=2,
)
