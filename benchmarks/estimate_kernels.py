"""Estimate kernel calibrations of devices that nobody measured in full, from published GEMM figures.

    python benchmarks/estimate_kernels.py -o hwmodels/calibrations/estimated.yaml

A device takes over the constants of a like one; its matrix efficiency is set so that the kernel model gives
the published FLOP/s at the published shape (published_gemm.csv), at settled clocks where the figure was taken
so. Where both devices have a published best rate, `ratio` of the two scales the like device's constants: its
measured kernels know what one best shape does not. A format without a figure keeps the like device's share of
the peak. Everything is marked estimated.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

import yaml

from hwmodels.device import Device, devices
from hwmodels.kernels import Calibration, KernelModel, calibrations
from hwmodels.kernels.chip import peak_dtype

Mapped = dict[str, Any]

PUBLISHED = Path(__file__).with_name("published_gemm.csv")
# Attention of training where another kernel runs than on the like device, as shares of the peak forward and
# backward at head dimension 128. MI300X: composable kernel, ROCm flash-attention issue 142 (353 and 200
# TFLOP/s). The others: estimates of memory-efficient attention without asynchronous copies.
ATTENTION = {
    "mi300x": (0.29, 0.17),
    "mi325x": (0.29, 0.17),
    "mi250x-gcd": (0.35, 0.22),
    "gaudi2": (0.45, 0.35),
    "v100": (0.4, 0.3),
    "t4": (0.3, 0.22),
    "p100": (0.5, 0.35),
}

# The like device's silicon at another clock or power limit: what bf16 gains, narrower formats gain too.
SAME_SILICON = ("b300", "gb300", "h200-nvl", "gh200", "mi350x", "h20", "l20")
COMPUTE_ONLY = ("compute_efficiency",)
COMPUTE_AND_FEED = ("compute_efficiency", "feed_bytes_per_flop")


def main() -> int:
    """Write the estimates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--out", type=Path, default=Path("hwmodels/calibrations/estimated.yaml"))
    arguments = parser.parse_args()
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    entries: dict[str, Mapped] = {}
    for row in rows:
        entry = estimate(row)
        if row["calibration"] in entries:
            known = entries[row["calibration"]]
            known["gemm"] |= entry["gemm"]
            known["grouped_gemm"] = known.get("grouped_gemm", {}) | entry.get("grouped_gemm", {})
        else:
            entries[row["calibration"]] = entry
    text = yaml.safe_dump({"entries": list(entries.values())}, sort_keys=False, width=110, allow_unicode=True)
    arguments.out.write_text(text, encoding="utf-8")
    return 0


def estimate(row: dict[str, str]) -> Mapped:
    """One calibration that gives the published figure."""
    if row["ratio"]:
        print(f"{row['calibration']:14} {row['dtype']:5} {row['based_on']} times {row['ratio']}")
        return scaled(row, float(row["ratio"]))
    device, wanted = devices.get(row["device"]), float(row["tflops"]) * 1e12
    low, high = 0.1, 4.0
    for _ in range(50):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if reached(row, device, middle) < wanted else (low, middle)
    found = scaled(row, middle)
    given = reached(row, device, middle) / 1e12
    published = f"{wanted / 1e12:7.1f} TFLOP/s published"
    print(f"{row['calibration']:14} {row['dtype']:5} {published}, {given:7.1f} given at {middle:.3f}")
    return found


def reached(row: dict[str, str], device: Device, scale: float) -> float:
    """FLOP/s at the published shape."""
    m, n, k = (float(row[side]) for side in "mnk")
    kernels = KernelModel(device, Calibration.model_validate(scaled(row, scale)))
    if row["settled"]:
        kernels = kernels.sustained()
    dtype = row["dtype"] if peak_dtype(row["dtype"]) in device.peak_flops else "fp16"
    return 2.0 * m * n * k / float(kernels.gemm(m, n, k, dtype))


def scaled(row: dict[str, str], scale: float) -> Mapped:
    """The like device's calibration with its matrix units so many times as efficient."""
    like = calibrations.get(row["based_on"])
    if row["dtype"] not in like.gemm:
        return of_its_own_units(row, like, scale)
    gemm = like.gemm[row["dtype"]]
    shares = ATTENTION.get(row["calibration"])
    entry: Mapped = {"source": row["source"], "simple": times(gemm.simple, scale, "compute_efficiency")}
    # Scales of blocks are applied beside the matrix units; L2 feeds them as before.
    parts = COMPUTE_ONLY if row["dtype"] == "fp8_block" else COMPUTE_AND_FEED
    if gemm.rich:
        entry["rich"] = times(gemm.rich, scale, *parts)
    found: Mapped = {
        "name": row["calibration"],
        "based_on": row["based_on"],
        "status": "estimated",
        "source": row["source"],
        "gemm": {row["dtype"]: entry},
    }
    if row["libraries_from"]:
        found["libraries_from"] = row["libraries_from"]
    grouped = like.grouped_gemm.get(row["dtype"])
    if grouped:
        scaled_form = times(grouped.form, scale, *parts)
        found["grouped_gemm"] = {row["dtype"]: {"form": scaled_form}}
    if row["dtype"] != "bf16":
        return found
    if row["calibration"] in SAME_SILICON:
        for dtype, fit in like.gemm.items():
            if fit.rich and dtype not in found["gemm"]:
                rich = times(fit.rich, scale, *COMPUTE_AND_FEED)
                simple = times(fit.simple, scale, "compute_efficiency")
                found["gemm"][dtype] = {"source": row["source"], "simple": simple, "rich": rich}
    for name, index in (("attention", 0), ("attention_backward", 1)):
        efficiency = getattr(like, name)["bf16"].form.efficiency
        factor = shares[index] / efficiency[128] if shares else scale
        form: Mapped = {"efficiency": {key: digits(value * factor) for key, value in efficiency.items()}}
        if shares and like.attention["bf16"].form.throttling:
            form = {"throttling": 0.0} | form  # the like device's kernel slows down, not this one's
        found[name] = {"bf16": {"form": form}}
    found["host_copy"] = {"bandwidth": float(row["host_link"])}
    return found


def of_its_own_units(row: dict[str, str], like: Calibration, scale: float) -> Mapped:
    """Products of a format that the like device runs on other units: the simple form alone."""
    simple = like.gemm["bf16"].simple
    entry = {
        "status": "estimated",
        "source": row["source"],
        "error": {"shapes": 0, "median": 0.2, "p90": 0.5},
        "simple": simple.model_dump() | times(simple, scale, "compute_efficiency"),
    }
    return {
        "name": row["calibration"],
        "based_on": row["based_on"],
        "status": "estimated",
        "source": row["source"],
        "gemm": {row["dtype"]: entry},
    }


def times(form: Any, scale: float, *fields: str) -> Mapped:
    """These fields of a form, scaled."""
    return {name: digits(getattr(form, name) * scale) for name in fields}


def digits(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


if __name__ == "__main__":
    sys.exit(main())
