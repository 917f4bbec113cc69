"""Estimate kernel calibrations of devices that nobody measured in full, from published GEMM figures.

    python -m benchmarks.estimate_kernels -o hwmodels/calibrations/estimated.yaml

A device takes over the constants of a like one; its matrix efficiency is set so that the kernel model gives
the published FLOP/s at the published shape (published_gemm.csv), at settled clocks where the figure was taken
so. Where both devices have a published best rate, `ratio` of the two scales the like device's constants: its
measured kernels know what one best shape does not. A format without a figure keeps the like device's share of
the peak. Everything is marked estimated.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import yaml

from evidence.command import command
from hwmodels.device import Device, devices
from hwmodels.kernels import Calibration, KernelModel, calibrations
from hwmodels.kernels.chip import peak_dtype

Mapped = dict[str, Any]

PUBLISHED = Path(__file__).with_name("published_gemm.csv")
# Attention of training where another kernel runs than on the like device, as shares of the peak forward and
# backward by head dimension; those of other dimensions keep the like device's ratio to 128. MI300X and
# MI355X: AITER's assembly kernels, medians over its table of 103 shapes (ROCm/aiter,
# op_tests/cpp/mha/README.md, 2025) of 2,048 positions and more; heads of 64 on MI300X as in AMD-AGI/Primus-
# Turbo, benchmark/baselines/attention.json. MLA's heads of 192 and 128 (160 on average) ran composable
# kernel: forward on MI300X until November 2025 (ROCm/aiter#1474, 0.40 since), backward on CDNA3 and CDNA4
# (AITER's assembly takes equal heads of queries and values, and Primus sets NVTE_CK_USES_BWD_V3 to 0): 103
# TFLOP/s causal on MI300X (Primus-Turbo, benchmark/results_optimized/attention_bf16_optimized.csv, 2026),
# and the same share of the peak on CDNA4. Backward on MI300X accumulates in 32 bits, as Primus sets it there
# (NVTE_CK_IS_V3_ATOMIC_FP32): the mean of AITER's table (0.88 of its 16-bit figures) and of Primus-Turbo's
# (0.78; heads of 64 0.86). MI325X: MI300X times the ratio of their best products, 1.17 (its forward kernel
# reaches 711 TFLOP/s, ROCm/FlyDSL#225). MI350X: MI355X over the 1.2 of its products. H20 has H100's
# exponential units beside 0.15 of its matrix units, which therefore bound attention as they bound products:
# heads of 256 reach 0.88 and 0.96 at 32,768 positions (alibaba/InferSim, bench_data/mha/prefill/h20);
# backward and heads of 64 follow from H100's time outside the matrix units. The others are estimates of
# memory-efficient attention without asynchronous copies.
COMPOSABLE = {"forward": 0.29, "backward": 0.17}
"""Composable kernel on MI300X, heads of 128: ROCm flash-attention issue 142 (353 and 200 TFLOP/s)."""
LATENT_BACKWARD = 0.107
"""Composable kernel's backward pass of heads of 192 and 128 on MI300X (103 TFLOP/s with a causal mask)."""
AOTRITON = 0.7
"""Torch's own attention on MI300X over composable kernel: the prefill of a 0.6B model at 8,192 tokens takes
1.18 times as long (huggingface/kernels-community#1002), attention alone about 1.4 times."""
Shares = dict[int, float]
ATTENTION: dict[str, tuple[Shares, Shares]] = {
    "mi300x": (
        {64: 0.374, 128: 0.456, 160: COMPOSABLE["forward"]},
        {64: 0.314, 128: 0.368, 160: LATENT_BACKWARD},
    ),
    "mi325x": ({64: 0.439, 128: 0.535, 160: 0.34}, {64: 0.367, 128: 0.431, 160: 0.125}),
    "mi355x": ({128: 0.604}, {64: COMPOSABLE["backward"], 128: 0.602, 160: LATENT_BACKWARD}),
    "mi350x": ({128: 0.549}, {64: 0.155, 128: 0.547, 160: 0.097}),
    "mi250x-gcd": ({128: 0.35}, {128: 0.22}),
    "mi210": ({128: 0.35}, {128: 0.22}),
    "h20": ({64: 0.97, 128: 1.0, 256: 1.0}, {64: 0.82, 128: 0.84}),
    "gaudi2": ({128: 0.45}, {128: 0.35}),
    "v100": ({128: 0.4}, {128: 0.3}),
    "t4": ({128: 0.3}, {128: 0.22}),
    "p100": ({128: 0.5}, {128: 0.35}),
}
# Time of products of experts over equally many dense products side by side, of 1,024 rows and more. MI300X:
# composable kernel's grouped GEMM (Primus-Turbo, grouped_gemm_turbo_bf16_20260310_MI300X.csv; medians of 41
# shapes: 0.85 of the dense speed forward, 0.76 backward); MI325X alike. MI355X: hipBLASLt by expert (column
# GMM of Primus-Turbo's pull request 284, medians of 11 shapes).
EXPERTS = {
    "mi300x": {"forward": 1.18, "dgrad": 1.32, "wgrad": 1.32},
    "mi325x": {"forward": 1.18, "dgrad": 1.32, "wgrad": 1.32},
    "mi355x": {"forward": 1.09, "dgrad": 1.08, "wgrad": 1.0},
    "mi350x": {"forward": 1.09, "dgrad": 1.08, "wgrad": 1.0},
}
EXPERTS_SOURCE = {
    "mi300x": "AMD-AGI/Primus-Turbo, grouped_gemm_turbo_bf16_20260310_MI300X.csv",
    "mi325x": "as mi300x",
    "mi355x": "AMD-AGI/Primus-Turbo, pull request 284",
    "mi350x": "as mi355x",
}
# Devices on which torch runs AOTriton, slower than the kernels that TransformerEngine takes.
TORCH_ATTENTION = ("mi300x", "mi325x")

# The like device's silicon at another clock or power limit: what bf16 gains, narrower formats gain too.
SAME_SILICON = ("h200-nvl", "gh200", "mi350x", "h20", "l20")
# How far tiles may be behind the fastest and count. The like device reads weights for longer than any tile
# of a few rows computes, so its fit cannot tell. H20 has a seventh of the matrix units: a tile of 64 rows
# computes for longer than the read, and engines run the tile that fits. SGLang takes 6.78 ms a token of
# Qwen3-VL-8B (pull 30398): 8.36 with the like device's spread of 0.2, 6.9 with the fastest tile.
TILE_SPREAD = {"h20": 0.02}
# Devices whose share of the peak counts their own power limit.
LIMITED = ("a10g", "a6000")
COMPUTE_ONLY = ("compute_efficiency",)
COMPUTE_AND_FEED = ("compute_efficiency", "feed_bytes_per_flop")


def estimate(row: dict[str, str]) -> Mapped:
    """One calibration that gives the published figure."""
    if row["ratio"]:
        print(f"{row['calibration']:14} {row['dtype']:5} {row['based_on']} times {row['ratio']}")
        return scaled(row, float(row["ratio"]))
    device, target = devices.get(row["device"]), float(row["tflops"]) * 1e12
    low, high = 0.1, 4.0
    middle = low
    for _ in range(50):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if reached(row, device, middle) < target else (low, middle)
    content = scaled(row, middle)
    reached_flops = reached(row, device, middle) / 1e12
    published = f"{target / 1e12:7.1f} TFLOP/s published"
    print(f"{row['calibration']:14} {row['dtype']:5} {published}, {reached_flops:7.1f} given at {middle:.3f}")
    return content


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
        entry["rich"] = times(gemm.rich, scale, *parts) | tile_spread(row)
    content = named(row, entry)
    if row["libraries_from"]:
        content["libraries_from"] = row["libraries_from"]
    grouped = like.grouped_gemm.get(row["dtype"])
    if grouped:
        scaled_form = times(grouped.form, scale, *parts)
        content["grouped_gemm"] = {row["dtype"]: {"form": scaled_form}}
    if row["dtype"] != "bf16":
        return content
    if row["calibration"] in SAME_SILICON:
        for dtype, fit in like.gemm.items():
            if fit.rich and dtype not in content["gemm"]:
                rich = times(fit.rich, scale, *COMPUTE_AND_FEED) | tile_spread(row)
                simple = times(fit.simple, scale, "compute_efficiency")
                content["gemm"][dtype] = {"source": row["source"], "simple": simple, "rich": rich}
    content |= attention(like, scale, shares, row["device"] in LIMITED)
    if experts := EXPERTS.get(row["calibration"]):
        content["expert_products"] = {"source": EXPERTS_SOURCE[row["calibration"]], **experts}
    if row["calibration"] in TORCH_ATTENTION:
        content["libraries"] = {"flash-attention-2": torch_attention(like)}
    content["host_copy"] = {"bandwidth": float(row["host_link"])}
    return content


def tile_spread(row: dict[str, str]) -> Mapped:
    """The device's own spread of tiles, where it has one."""
    name = row["calibration"]
    return {"tile_spread": TILE_SPREAD[name]} if name in TILE_SPREAD else {}


def attention(like: Calibration, scale: float, shares: tuple[Shares, Shares] | None, limited: bool) -> Mapped:
    """Forward and backward attention: the like device's, scaled, or the device's own shares of the peak.

    Args:
        like: calibration of the like device.
        scale: efficiency over the like device's.
        shares: the device's own, forward and backward, by head dimension.
        limited: whether ``scale`` counts the device's power limit.
    """
    content: Mapped = {}
    for index, name in enumerate(("attention", "attention_backward")):
        efficiency = getattr(like, name)["bf16"].form.efficiency
        stated = shares[index] if shares else {}
        factor = stated[128] / efficiency[128] if shares else scale
        efficiencies = {key: digits(value * factor) for key, value in efficiency.items()} | stated
        form: Mapped = {"efficiency": dict(sorted(efficiencies.items()))}
        if (shares or limited) and like.attention["bf16"].form.throttling:
            form = {"throttling": 0.0} | form  # the like device's kernel slows down, not this one's
        content[name] = {"bf16": {"form": form}}
    return content


def torch_attention(like: Calibration) -> Mapped:
    """AOTriton's kernels, which torch runs as its own attention."""
    content: Mapped = {}
    for name, direction in (("attention", "forward"), ("attention_backward", "backward")):
        form = getattr(like, name)["bf16"].form
        factor = AOTRITON * COMPOSABLE[direction] / form.efficiency[128]
        efficiency = {key: digits(value * factor) for key, value in form.efficiency.items()}
        content[name] = {
            "bf16": {
                "status": "estimated",
                "source": "AOTriton: 0.7 of composable kernel's 353 and 200 TFLOP/s (estimate_kernels.py)",
                "error": {"shapes": 0, "median": 0.2, "p90": 0.5},
                "form": form.model_dump() | {"throttling": 0.0, "efficiency": efficiency},
            }
        }
    return content


def of_its_own_units(row: dict[str, str], like: Calibration, scale: float) -> Mapped:
    """Products of a format that the like device runs on other units: the simple form alone."""
    simple = like.gemm["bf16"].simple
    entry = {
        "status": "estimated",
        "source": row["source"],
        "error": {"shapes": 0, "median": 0.2, "p90": 0.5},
        "simple": simple.model_dump() | times(simple, scale, "compute_efficiency"),
    }
    return named(row, entry)


def named(row: dict[str, str], entry: Mapped) -> Mapped:
    """A calibration with one entry of products."""
    return {
        "name": row["calibration"],
        "multiprocessors": multiprocessors(row["calibration"]),
        "based_on": row["based_on"],
        "status": "estimated",
        "source": row["source"],
        "gemm": {row["dtype"]: entry},
    }


def multiprocessors(calibration: str) -> int:
    """Of the devices that use a calibration: as many saturate the memory of a device with more of them.

    Raises:
        ValueError: they differ, so that one needs a calibration of its own.
    """
    users = [device for device in map(devices.get, devices.names()) if device.calibration == calibration]
    (number,) = {device.multiprocessors for device in users}
    return number


def times(form: Any, scale: float, *fields: str) -> Mapped:
    """These fields of a form, scaled."""
    return {name: digits(getattr(form, name) * scale) for name in fields}


def digits(value: float) -> float:
    """Four significant digits."""
    return float(f"{value:.4g}")


@command
def main(*, out: Annotated[Path, "-o"] = Path("hwmodels/calibrations/estimated.yaml")) -> None:
    """Write the estimates."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    entries: dict[str, Mapped] = {}
    for row in rows:
        entry = estimate(row)
        if row["calibration"] in entries:
            calibration = entries[row["calibration"]]
            calibration["gemm"] |= entry["gemm"]
            calibration["grouped_gemm"] = calibration.get("grouped_gemm", {}) | entry.get("grouped_gemm", {})
        else:
            entries[row["calibration"]] = entry
    text = yaml.safe_dump({"entries": list(entries.values())}, sort_keys=False, width=110, allow_unicode=True)
    out.write_text(text, encoding="utf-8")
