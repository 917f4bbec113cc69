"""Recommendation models with embedding tables, and the libraries that train them."""

from __future__ import annotations

from typing import Any

from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.units import counted
from simulator.tables.libraries import tables_libraries
from simulator.tables.models import TablesModel, tables_models


def _brief(model: TablesModel) -> dict[str, Any]:
    return {**model.model_dump(mode="json"), "embeddings": model.embeddings}


def _about(model: TablesModel) -> dict[str, str]:
    how = model.interaction
    crosses = f", {how.layers} layers of rank {how.rank}" if how.layers else ""
    return {
        "tables": f"{len(model.rows):,} of width {model.width:,}, {counted(model.embeddings)} parameters",
        "look-ups of a sample": f"{float(model.table_lookups.sum()):g}",
        "bottom MLP": " - ".join(map(str, (model.dense, *model.bottom))),
        "interaction": f"{how.kind}{crosses}",
        "top MLP": " - ".join(map(str, (model.interacted, *model.top))),
        "aliases": ", ".join(model.aliases),
        "source": model.source,
    }


MODELS = Kind(
    names=tables_models.names,
    get=tables_models.get,
    brief=_brief,
    cells={
        "model": lambda model: model.name,
        "interaction": lambda model: model.interaction.kind,
        "tables": lambda model: f"{len(model.rows):,}",
        "parameters": lambda model: counted(model.embeddings),
        "width": lambda model: f"{model.width:,}",
        "look-ups": lambda model: f"{float(model.table_lookups.sum()):g}",
    },
    about=_about,
    text_columns=2,
)


LIBRARIES = Kind(
    names=tables_libraries.names,
    get=tables_libraries.get,
    cells={
        "library": lambda library: library.name,
        "what": lambda library: library.title,
        "cuts tables by": lambda library: library.split,
        "launch, us": lambda library: f"{1e6 * library.launch_s:.1f}",
    },
    text_columns=3,
)
