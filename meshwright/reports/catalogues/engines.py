"""Serving engines: defaults of their schedulers, and times around kernels."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import table
from meshwright.reports.units import seconds
from simulator.serving.engines import Engine, Figure, engines


def _figures(engine: Engine) -> dict[str, Figure[Any]]:
    values = {name: getattr(engine, name) for name in type(engine).model_fields}
    return {name: value for name, value in values.items() if isinstance(value, Figure)}


def _brief(engine: Engine) -> dict[str, Any]:
    return {
        "name": engine.name,
        "engine": engine.engine,
        "version": engine.version,
        "scheduler": engine.scheduler.value,
        "schedules_ahead": engine.schedules_ahead.value,
    }


def _parts(engine: Engine) -> list[Table]:
    rows = [
        [name, str(figure.value), figure.kind, figure.source] for name, figure in _figures(engine).items()
    ]
    times = [
        [
            figure.layers,
            figure.format,
            figure.generation or "nvidia",
            seconds(figure.layer_s),
            seconds(figure.sequence_s),
            figure.kind,
        ]
        for figure in engine.times
    ]
    return [
        table(("figure", "value", "kind", "source"), rows, left=4),
        table(
            ("layers", "format", "devices", "a layer", "a sequence", "kind"),
            times,
            "Times around kernels",
            left=3,
        ),
    ]


KIND = Kind(
    names=engines.names,
    get=engines.get,
    brief=_brief,
    more=lambda engine: engine.model_dump(mode="json"),
    cells={
        "engine": lambda engine: engine.name,
        "scheduler": lambda engine: engine.scheduler.value,
        "schedules": lambda engine: "one step ahead" if engine.schedules_ahead.value else "between steps",
        "token budget": lambda engine: f"{engine.max_batched_tokens.value:,}",
        "sequences": lambda engine: f"{engine.max_sequences.value:,}",
        "memory share": lambda engine: f"{engine.memory_share.value:g}",
    },
    about=lambda engine: {"engine": engine.engine, "version": engine.version},
    parts=_parts,
    text_columns=3,
)
