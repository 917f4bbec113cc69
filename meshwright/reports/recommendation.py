"""A batch of a recommendation model, as tables and under the keys of docs/json.md."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from meshwright.reports.tables import facts, fitted, table
from meshwright.reports.units import counted, percent, seconds
from simulator.tables.ops import dense_parameters
from simulator.tables.step import TablesStep

GIGA = 1e9
WORDS = {
    "lookup": "look-ups",
    "keys": "keys of the next batch",
    "vectors": "pooled vectors to their samples",
    "bottom": "bottom MLP",
    "top": "interaction and top MLP",
    "top_wgrad": "gradients of the top MLP's weights",
    "bottom_backward": "bottom MLP, backward",
    "gradients": "gradients of vectors to their tables",
    "update": "update of rows",
    "reduce": "gradients of MLPs and copies",
    "dense": "update of MLPs",
}
"""Parts of a batch in words."""


def _dollars(step: TablesStep) -> float:
    """List price of a million samples."""
    hour = step.setting.cluster.device.price_per_hour_usd * step.setting.devices
    return hour / 3600 / step.rate * 1e6


def describe_tables(step: TablesStep) -> dict[str, Any]:
    """The answer of a scenario of embedding tables, with documented keys."""
    setting, sharding = step.setting, step.sharding
    work = setting.workload
    return {
        "title": setting.title,
        "model": setting.model.name,
        "embeddings": setting.model.embeddings,
        "parameters": dense_parameters(setting),
        "cluster": setting.cluster.name,
        "device": setting.cluster.device.name,
        "gpus": setting.devices,
        "library": setting.library.name,
        "shards": setting.shards.model_dump(mode="json"),
        "passes": work.passes,
        "batch": work.batch,
        "step_time_s": step.step_s,
        "rate": step.rate,
        "usd_per_million": _dollars(step),
        "parts_s": {
            name: {"kernels": part.device_s, "wire": part.wire_s} for name, part in step.parts.items()
        },
        "host_s": step.host_s,
        "pieces": len(sharding.pieces.table),
        "copied": len(sharding.copied),
        "balance": step.balance,
        "bound_gap": sharding.gap,
        "sent_bytes": step.sent_bytes,
        "memory_bytes": dict(step.memory_bytes),
        "memory_total_bytes": sum(step.memory_bytes.values()),
    }


def tables_tables(step: TablesStep) -> list[Table | str]:
    """A verdict, figures of the batch, and what it is made of."""
    setting, sharding = step.setting, step.sharding
    model, device = setting.model, setting.cluster.device
    memory = sum(step.memory_bytes.values())
    figures = {
        "model": f"{model.name}, {len(model.rows):,} tables of {counted(model.embeddings)} parameters, "
        f"{counted(dense_parameters(setting))} in MLPs",
        "devices": f"{setting.devices:,} x {device.name} ({setting.cluster.name})",
        "library": setting.library.title,
        "shards": f"{len(sharding.pieces.table):,} pieces, {len(sharding.copied):,} tables copied; the "
        f"busiest device has {step.balance:.2f} times the mean work, {percent(sharding.gap)} over the bound",
    }
    rows = [
        [WORDS[name], seconds(part.device_s), seconds(part.wire_s) if part.wire_s else ""]
        for name, part in step.parts.items()
    ]
    what = "a training step" if setting.trains else "the scores"
    verdict = [
        f"{seconds(step.step_s)} {what} of {setting.workload.batch:,} samples",
        f"{counted(step.rate)} samples/s",
        f"{_dollars(step):.3g} $ a million",
        f"{memory / GIGA:.1f} of {device.memory_bytes / GIGA:.1f} GB on the fullest device",
        *(["launches on the host decide"] if step.host_s > step.device_s else []),
    ]
    return [
        "\n".join(fitted(verdict)),
        facts(figures, setting.title),
        table(("part, on its busiest device", "kernels", "wire"), rows),
    ]
