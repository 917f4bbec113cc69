"""Devices: what they can do at most, and how far their kernel times are to be trusted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rich.table import Table

from hwmodels.device import Device, devices
from hwmodels.kernels.calibration import Calibration
from meshwright.reports.catalogues.kind import Kind
from meshwright.reports.tables import facts, table
from meshwright.reports.units import gibibytes, percent, scaled, seconds


def _brief(device: Device) -> dict[str, Any]:
    calibration = device.kernels.calibration
    return {
        "name": device.name,
        "vendor": device.vendor,
        "generation": device.generation.name,
        "peak_flop_per_s": dict(device.peak_flops),
        "memory_bytes": device.memory_bytes,
        "memory_bandwidth_bytes_per_s": device.memory_bandwidth,
        "multiprocessors": device.multiprocessors,
        "l2_bytes": device.l2_bytes,
        "tdp_watts": device.tdp_watts,
        "idle_watts": device.idle_watts,
        "price_per_hour_usd": device.price_per_hour_usd,
        "calibration": {"name": calibration.name, "status": calibration.status, "source": calibration.source},
    }


def _more(device: Device) -> dict[str, Any]:
    calibration = device.kernels.calibration
    return {
        "sources": dict(device.sources),
        "launch_s": calibration.launch_s,
        "kernels": list(_kernels(calibration)),
    }


def _kernels(calibration: Calibration) -> Iterator[dict[str, Any]]:
    """Each calibrated operation and dtype with its status, source and error on unseen shapes."""
    for operation in type(calibration).model_fields:
        value = getattr(calibration, operation)
        entries = value.items() if isinstance(value, Mapping) else [(None, value)]
        for dtype, entry in entries:
            if not hasattr(entry, "status"):
                continue
            error = getattr(entry, "error", None)
            yield {
                "operation": operation,
                "dtype": dtype,
                "status": entry.status,
                "median_error": error and error.median,
                "p90_error": error and error.p90,
                "unseen_shapes": error and error.shapes,
                "source": entry.source,
            }


def _errors(kernel: dict[str, Any]) -> list[str]:
    """Median and 90th percentile; what was measured at too few points to keep one out says so."""
    if kernel["status"] == "measured" and not kernel["unseen_shapes"]:
        return ["too few", ""]
    return ["" if kernel[key] is None else percent(kernel[key]) for key in ("median_error", "p90_error")]


def _peak(name: str) -> Callable[[Device], str]:
    """Dense TFLOP/s of a format; empty where the device lacks it."""

    def cell(device: Device) -> str:
        peaks = {str(each): value for each, value in device.peak_flops.items()}
        return f"{peaks[name] / 1e12:.0f}" if name in peaks else ""

    return cell


def _about(device: Device) -> dict[str, str]:
    calibration = device.kernels.calibration
    peaks = ", ".join(f"{dtype} {value / 1e12:.4g}" for dtype, value in device.peak_flops.items())
    return {
        "peak, dense TFLOP/s": peaks,
        "memory": f"{gibibytes(device.memory_bytes)} at {scaled(device.memory_bandwidth, 'B/s')}",
        "multiprocessors": f"{device.multiprocessors}, L2 {device.l2_bytes / 2**20:.0f} MiB",
        "power": f"{device.tdp_watts:.0f} W, idle {device.idle_watts:.0f} W",
        "price": f"{device.price_per_hour_usd:.2f} $/h",
        "calibration": f"{calibration.name} ({calibration.status}): {calibration.source}",
        "kernel launch": seconds(calibration.launch_s),
    }


def _parts(device: Device) -> list[Table]:
    kernels = [
        [
            kernel["operation"],
            kernel["dtype"] or "",
            kernel["status"],
            *_errors(kernel),
            kernel["source"],
        ]
        for kernel in _kernels(device.kernels.calibration)
    ]
    headings = ("kernel", "dtype", "status", "median error", "90th pct", "source")
    return [
        table(headings, kernels, "Kernel times and their error on shapes that the fit did not see", left=6),
        facts(dict(device.sources), "Sources"),
    ]


KIND = Kind(
    names=devices.names,
    get=devices.get,
    brief=_brief,
    more=_more,
    cells={
        "device": lambda device: device.name,
        "generation": lambda device: device.generation.name,
        "calibration": lambda device: device.kernels.calibration.status,
        "memory": lambda device: gibibytes(device.memory_bytes),
        "bandwidth": lambda device: scaled(device.memory_bandwidth, "B/s"),
        "fp16 TFLOP/s": _peak("fp16"),
        "bf16": _peak("bf16"),
        "fp8": _peak("fp8"),
        "nvfp4": _peak("nvfp4"),
        "W": lambda device: f"{device.tdp_watts:.0f}",
        "$/h": lambda device: f"{device.price_per_hour_usd:.2f}",
    },
    about=_about,
    parts=_parts,
    text_columns=3,
)
