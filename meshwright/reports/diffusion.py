"""A batch of images or videos, as tables and under the keys of docs/json.md."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.table import Table

from core.records import record
from meshwright.reports.tables import facts, fitted, table
from meshwright.reports.units import counted, gibibytes, percent, seconds, significant
from simulator.diffusion.load import DiffusionLoad
from simulator.diffusion.ops import transformer_parameters
from simulator.diffusion.request import DiffusionRequest
from simulator.diffusion.serving import LoadResult
from simulator.diffusion.setting import DiffusionSetting

PERCENTILES = (50, 90, 99)


@record()
class ServedLoad:
    """A load on some replicas, and its run."""

    load: DiffusionLoad
    replicas: int
    result: LoadResult


def describe_load(request: DiffusionRequest, served: ServedLoad) -> dict[str, Any]:
    """The run of a load, with documented keys."""
    result, load, devices = served.result, served.load, request.setting.devices
    prompts = len(result.latencies_s)
    hours = served.replicas * devices * result.span_s / 3600
    price = request.setting.cluster.device.price_per_hour_usd
    return {
        "replicas": served.replicas,
        "gpus": served.replicas * devices,
        "batching": load.batching,
        "requests": prompts,
        "latency_s": {
            "mean": float(result.latencies_s.mean()),
            **{f"p{point}": float(np.percentile(result.latencies_s, point)) for point in PERCENTILES},
        },
        "rate": prompts / result.span_s,
        "mean_batch": result.batch,
        "busy": result.busy_s / (served.replicas * result.span_s),
        "within_target": None if load.latency is None else result.share_within(load.latency),
        "joules": result.joules / prompts,
        "usd": price * hours / prompts,
    }


def describe_diffusion(request: DiffusionRequest, served: ServedLoad | None = None) -> dict[str, Any]:
    """The answer of a scenario of diffusion, with documented keys."""
    setting, times = request.setting, request.times
    work = setting.workload
    return {
        "title": setting.title,
        "model": setting.model.name,
        "parameters": transformer_parameters(setting.model),
        "cluster": setting.cluster.name,
        "device": setting.cluster.device.name,
        "gpus": setting.devices,
        "library": setting.library.name,
        "layout": setting.layout.model_dump(mode="json"),
        "height": work.height,
        "width": work.width,
        "frames": work.frames,
        "batch": work.batch,
        "steps": setting.steps,
        "calls": setting.calls,
        "tokens": setting.tokens,
        "step_time_s": times.latency_s,
        "latency_s": times.latency_s,
        "rate": request.rate,
        "latency_error_p90": setting.library.latency_error,
        **({"addons": setting.addons.model_dump(mode="json")} if has_addons(setting) else {}),
        "parts_s": {
            "encoders": times.encoders_s,
            **({"addons": times.addons_s} if has_addons(setting) else {}),
            "steps": times.latency_s - times.encoders_s - times.addons_s - times.decoder_s,
            "decoder": times.decoder_s,
        },
        "call_s": {
            "kernels": times.device_s,
            "exposed": times.exposed_s,
            "host": times.host_s,
            "weights_from_host": times.stream_s,
        },
        "binding": binding(request),
        "watts": request.watts,
        "joules": request.joules,
        "usd": request.usd,
        "received_bytes": request.received_bytes,
        "memory_bytes": dict(request.memory_bytes),
        "memory_total_bytes": sum(request.memory_bytes.values()),
        **({} if served is None else {"load": describe_load(request, served)}),
    }


def latency_band(setting: DiffusionSetting) -> str:
    """Half-width of a latency's band, in words; empty where no rows tell it."""
    error = setting.library.latency_error
    return "" if error is None else f" ± {percent(error, 0)}"


def error_words(setting: DiffusionSetting) -> str:
    """What the band of latencies rests on."""
    error, library = setting.library.latency_error, setting.library
    if error is None:
        return f"not known: no measured rows of {library.title}"
    return (
        f"one latency of ten beyond {percent(error, 0)}, on rows that nothing was fitted to ({library.name})"
    )


def has_addons(setting: DiffusionSetting) -> bool:
    """Whether prompts bring ControlNets or adapters."""
    return bool(setting.addons.controls or setting.addons.adapters)


def _addons(setting: DiffusionSetting) -> str:
    """Add-ons of a prompt, in words."""
    added, words = setting.addons, []
    if added.controls:
        places = {
            "shared": "on the same devices",
            "own": "each on devices of its own",
            "service": "each on devices that serve all copies",
        }[added.placement]
        words.append(f"{added.controls} ControlNets {places}, {percent(added.uncached, 0)} read first")
    if added.adapters:
        words.append(f"{added.adapters} adapters of rank {added.rank}, merged {added.merged} the first steps")
    return "; ".join(words)


def binding(request: DiffusionRequest) -> str:
    """What a step waits for: the device, the host's launches, or weights that it does not keep."""
    times = request.times
    waits = {
        "device": times.device_s + times.exposed_s,
        "host": times.host_s,
        _arriving(request): times.stream_s,
    }
    return max(waits, key=waits.__getitem__)


def _arriving(request: DiffusionRequest) -> str:
    """Where weights that a device does not keep come from, in words."""
    layout = request.setting.layout
    return f"weights from {'the host' if layout.offload == 'layers' else 'other devices'}"


def diffusion_tables(request: DiffusionRequest, served: ServedLoad | None = None) -> list[Table | str]:
    """A verdict, figures of the batch, and what its steps are made of."""
    setting, times = request.setting, request.times
    work, kind = setting.workload, "video" if setting.model.video else "image"
    frames = f", {work.frames} frames" if setting.model.video else ""
    calls = "with and without the prompt" if setting.calls == 2 else "one call"
    memory, device = sum(request.memory_bytes.values()), setting.cluster.device
    figures = {
        "model": f"{setting.model.name}, {counted(transformer_parameters(setting.model))} parameters",
        "devices": f"{setting.devices:,} x {device.name} ({setting.cluster.name}){_layout(setting)}",
        "library": setting.library.title,
        "batch": f"{work.batch:,} x {work.width:,} x {work.height:,} pixels{frames}: "
        f"{setting.tokens:,} patches each",
        "steps": f"{setting.steps:,}, {calls}",
        **({"add-ons": _addons(setting)} if has_addons(setting) else {}),
        "energy": f"{request.joules:,.0f} J each, at {request.watts:,.0f} W",
        "expected error": error_words(setting),
    }
    steps = times.latency_s - times.encoders_s - times.addons_s - times.decoder_s
    parts = {
        "text encoders": times.encoders_s,
        **({"add-ons, until the steps have them": times.addons_s} if times.addons_s else {}),
        "steps": steps,
        "decoder": times.decoder_s,
    }
    rows = [[name, seconds(time), percent(time / times.latency_s)] for name, time in parts.items()]
    waits = {
        "kernels": times.device_s,
        "exchanges that nothing hides": times.exposed_s,
        "launches on the host": times.host_s,
        _arriving(request): times.stream_s,
    }
    calls_rows = [[name, seconds(time)] for name, time in waits.items() if time]
    latency = f"{seconds(times.latency_s)}{latency_band(setting)}"
    verdict = [
        f"{latency} for {work.batch:,} {kind}{'s' * (work.batch > 1)}",
        f"{significant(request.rate)} {kind}s/s on {setting.devices:,} GPU{'s' * (setting.devices > 1)}",
        f"{significant(1e3 * request.usd)} $ per 1,000",
        f"{memory / 2**30:.1f} of {gibibytes(device.memory_bytes)}",
    ]
    return [
        "\n".join(fitted(verdict)),
        facts(figures, setting.title),
        table(("part", "time", "share"), rows),
        table((f"a step (waits for the {binding(request)})", "time"), calls_rows),
        *([] if served is None else [_load_table(request, served)]),
    ]


def _load_table(request: DiffusionRequest, served: ServedLoad) -> Table:
    """Figures of a load."""
    report, load = describe_load(request, served), served.load
    latency = ", ".join(f"{name} {seconds(value)}" for name, value in report["latency_s"].items())
    rows = {
        "load": f"{report['requests']:,} prompts on {served.replicas:,} replicas ({report['gpus']:,} GPUs), "
        f"{report['batching']} of {report['mean_batch']:.2g} in the mean",
        "latency of a prompt": latency,
        "completed": f"{report['rate']:.3g} a second; replicas busy {percent(report['busy'])} of the time",
        "energy and price of one": f"{report['joules']:,.0f} J, ${report['usd']:.3g}",
    }
    if load.latency is not None:
        verdict = "met" if report["within_target"] >= load.share else "missed"
        rows["target"] = (
            f"{percent(report['within_target'])} within {seconds(load.latency)} "
            f"(target {percent(load.share)}: {verdict})"
        )
    return facts(rows)


def _layout(setting: DiffusionSetting) -> str:
    """Degrees above one, in words."""
    stated = setting.layout.model_dump(exclude_defaults=True)
    words = (name if value is True else f"{name} {value}" for name, value in stated.items())
    return "".join(f", {word}" for word in words)
