"""Recommendation models with embedding tables, and the libraries that train them."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts
from meshwright.reports.units import counted
from simulator.tables.libraries import tables_libraries
from simulator.tables.models import TablesModel, tables_models


def _brief(model: TablesModel) -> dict[str, Any]:
    return {**model.model_dump(mode="json"), "embeddings": model.embeddings}


def _row(model: TablesModel) -> list[str]:
    reads = float(model.table_lookups.sum())
    return [
        model.name,
        model.interaction.kind,
        f"{len(model.rows):,}",
        counted(model.embeddings),
        f"{model.width:,}",
        f"{reads:g}",
    ]


def _tables(model: TablesModel) -> list[Table]:
    how = model.interaction
    crosses = f", {how.layers} layers of rank {how.rank}" if how.layers else ""
    rows = {
        "tables": f"{len(model.rows):,} of width {model.width:,}, {counted(model.embeddings)} parameters",
        "look-ups of a sample": f"{float(model.table_lookups.sum()):g}",
        "bottom MLP": " - ".join(map(str, (model.dense, *model.bottom))),
        "interaction": f"{how.kind}{crosses}",
        "top MLP": " - ".join(map(str, (model.interacted, *model.top))),
        "aliases": ", ".join(model.aliases),
        "source": model.source,
    }
    return [facts({name: value for name, value in rows.items() if value}, model.name)]


MODELS = Kind(
    names=tables_models.names,
    get=tables_models.get,
    brief=_brief,
    columns=("model", "interaction", "tables", "parameters", "width", "look-ups"),
    row=_row,
    tables=_tables,
    text_columns=2,
)


LIBRARIES = Kind(
    names=tables_libraries.names,
    get=tables_libraries.get,
    columns=("library", "what", "cuts tables by", "launch, us"),
    row=lambda library: [library.name, library.title, library.split, f"{1e6 * library.launch_s:.1f}"],
    text_columns=3,
)
