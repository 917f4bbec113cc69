"""Rates of simulators, as tables and under the keys of docs/json.md."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from meshwright.reports.tables import facts, fitted, table
from meshwright.reports.units import counted, percent, seconds
from simulator.frames.rates import FrameRates, keeping_up


def describe_frames(rates: FrameRates) -> dict[str, Any]:
    """The answer of a scenario of simulators, with documented keys."""
    setting = rates.setting
    device, model = setting.cluster.device, setting.model
    batch = setting.workload.batch or setting.count
    hour = setting.cluster.price_per_hour_usd
    return {
        "title": setting.title,
        "model": "random actions" if model is None else model.name,
        "parameters": 0.0 if model is None else model.parameters,
        "cluster": setting.cluster.name,
        "device": device.name,
        "gpus": setting.cluster.devices,
        "sampler": setting.sampler.name,
        "environments": setting.count,
        "cores": setting.cores,
        "step_time_s": batch / rates.steps_s,
        "steps_per_s": rates.steps_s,
        "frames_per_s": rates.frames_s,
        "usd_per_million_frames": hour / 3600 / rates.frames_s * 1e6,
        "binding": rates.binding,
        "node_cores_keeping_up": keeping_up(setting),
        "bounds_per_s": dict(rates.bounds),
        "busy_share": dict(rates.busy),
        "parts_s": {
            "cycle": {"environments": rates.cycle_s},
            "pass": {"inference": rates.inference_s},
            "optimizer_step": {"learner": rates.learner_s},
        },
        "inference_batch": rates.batch,
    }


def frames_tables(rates: FrameRates) -> list[Table | str]:
    """A verdict, figures of the rates, and what each station could take."""
    setting, figures = rates.setting, describe_frames(rates)
    where = f"{setting.cores:,} cores on {setting.nodes:,} node{'s' * (setting.nodes > 1)}"
    rows_of_step = {
        "policy": f"{figures['model']}, {counted(figures['parameters'])} parameters",
        "environments": f"{setting.count:,} on {where}, {setting.sampler.name}",
        "devices": f"{setting.cluster.devices:,} x {setting.cluster.device.name} ({setting.cluster.name})",
        "steps": f"{rates.steps_s:,.0f} a second, of {setting.workload.frames:,} frames",
        "cycle": f"{seconds(rates.cycle_s)}; pass of the policy {seconds(rates.inference_s)} over "
        f"{rates.batch:,.0f} observations; optimizer step {seconds(rates.learner_s)}",
    }
    rows = [
        [
            name,
            f"{bound * setting.workload.frames:,.0f}",
            percent(rates.busy[name]) if name in rates.busy else "",
        ]
        for name, bound in rates.bounds.items()
    ]
    verdict = [
        f"{rates.frames_s:,.0f} frames/s",
        f"{figures['usd_per_million_frames']:.3g} $ a million",
        _deciding(rates, figures["node_cores_keeping_up"]),
    ]
    return [
        "\n".join(fitted(verdict)),
        facts(rows_of_step, setting.title),
        table(("station", "frames/s at most", "busy"), rows),
    ]


def _deciding(rates: FrameRates, cores: int | None) -> str:
    """What decides, and with how many cores environments keep up."""
    decides = f"{rates.binding} decide"
    return decides if cores is None else f"{decides}; environments keep up with {counted(cores)} cores a node"
