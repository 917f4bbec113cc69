"""Diffusion models, the libraries that run them, and vision towers of published models."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.table import Table

from core.errors import UnknownNameError
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts
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


def _model_row(model: DiffusionModel) -> list[str]:
    kinds = ", ".join(dict.fromkeys(blocks.kind for blocks in model.blocks))
    video = "video" if model.video else "image"
    return [
        model.name,
        video,
        kinds,
        counted(transformer_parameters(model)),
        str(model.steps),
        model.guidance,
    ]


def _model_tables(model: DiffusionModel) -> list[Table]:
    encoders = ", ".join(f"{part.name} {counted(encoder_parameters(part))}" for part in model.encoders)
    stated = model.stated_parameters
    rows = {
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
    return [facts({name: value for name, value in rows.items() if value}, model.name)]


MODELS = Kind(
    names=diffusion_models.names,
    get=diffusion_models.get,
    brief=_model_brief,
    columns=("model", "makes", "blocks", "parameters", "steps", "guidance"),
    row=_model_row,
    tables=_model_tables,
    text_columns=3,
)


LIBRARIES = Kind(
    names=diffusion_libraries.names,
    get=diffusion_libraries.get,
    columns=("library", "what", "launch, us", "attention"),
    row=lambda library: [library.name, library.title, f"{1e6 * library.launch_s:.1f}", library.attention],
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


def _tower_row(tower: Tower) -> list[str]:
    shape = tower.shape(SHOWN)
    return [
        tower.name,
        tower.rule.kind,
        f"{tower.layers} x {tower.hidden:,}",
        counted(tower_parameters(tower)),
        f"{shape.tokens:,}",
    ]


TOWERS = Kind(
    names=published_names,
    get=_tower,
    brief=lambda tower: {**tower.model_dump(mode="json"), "parameters": tower_parameters(tower)},
    columns=("tower of", "rule", "layers", "parameters", "tokens of 1280x720"),
    row=_tower_row,
    tables=lambda tower: [
        facts(
            {
                "layers": f"{tower.layers} of {tower.hidden:,}, {tower.heads} heads, "
                f"MLP {tower.feed_forward:,}",
                "parameters": f"{tower_parameters(tower):,}",
                "patch": f"{tower.patch} pixels, {tower.merge} x {tower.merge} to a token",
                "tokens": ", ".join(
                    f"{width}x{height}: {tower.shape(Picture(width, height)).tokens:,}"
                    for width, height in ((640, 480), (1280, 720), (1920, 1080))
                ),
            },
            tower.name,
        )
    ],
    text_columns=2,
)
