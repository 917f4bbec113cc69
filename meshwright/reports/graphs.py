"""An epoch over a graph, as tables and under the keys of docs/json.md."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from meshwright.reports.tables import facts, fitted, table
from meshwright.reports.units import counted, percent, seconds
from simulator.graphs.epoch import Epoch

GIGA = 1e9


def describe_epoch(epoch: Epoch) -> dict[str, Any]:
    """The answer of a scenario of graphs, with documented keys."""
    setting = epoch.setting
    work, device = setting.workload, setting.cluster.device
    hour = device.price_per_hour_usd * setting.layout.devices
    return {
        "title": setting.title,
        "model": setting.model.model_dump(mode="json"),
        "cluster": setting.cluster.name,
        "device": device.name,
        "gpus": setting.layout.devices,
        "layout": setting.layout.model_dump(mode="json"),
        "vertices": work.vertices,
        "edges": work.edges,
        "step_time_s": epoch.epoch_s,
        "parts_s": {
            "kernels": epoch.kernels_s,
            "copies": epoch.exchange_s,
            "bubble": epoch.bubble_s,
            "gradients": epoch.reduce_s,
        },
        "usd": hour * epoch.epoch_s / 3600,
        "boundary_bytes": epoch.boundary_bytes,
        "replica_bytes": epoch.replica_bytes,
        "memory_bytes": dict(epoch.memory_bytes),
        "memory_total_bytes": sum(epoch.memory_bytes.values()),
    }


def epoch_tables(epoch: Epoch) -> list[Table | str]:
    """A verdict, figures of the epoch, and what it is made of."""
    setting, figures = epoch.setting, describe_epoch(epoch)
    model, work, layout, device = setting.model, setting.workload, setting.layout, setting.cluster.device
    degrees = {"stages": layout.stages, "chunks": layout.chunks, "partitions": layout.partitions}
    divided = ", ".join(f"{count:,} {name}" for name, count in degrees.items() if count > 1)
    rows_of_epoch = {
        "model": f"{model.name}, {model.layers:,} layers of {model.hidden:,}",
        "graph": f"{counted(work.vertices)} vertices, {counted(work.edges)} edges",
        "devices": f"{layout.devices:,} x {device.name} ({setting.cluster.name}){divided and ': '}{divided}",
        "exchanged": f"{epoch.boundary_bytes / GIGA:.3g} GB between stages, "
        f"{epoch.replica_bytes / GIGA:.3g} GB of copies between partitions",
    }
    words = {"copies": "copies of vertices", "gradients": "gradients over partitions"}
    rows = [
        [words.get(name, name), seconds(time), percent(time / epoch.epoch_s)]
        for name, time in figures["parts_s"].items()
        if time
    ]
    verdict = [
        f"{seconds(epoch.epoch_s)} an epoch",
        f"{figures['usd']:.3g} $",
        f"{figures['memory_total_bytes'] / GIGA:.1f} of {device.memory_bytes / GIGA:.1f} GB a device",
    ]
    return [
        "\n".join(fitted(verdict)),
        facts(rows_of_epoch, setting.title),
        table(("part", "time", "share"), rows),
    ]
