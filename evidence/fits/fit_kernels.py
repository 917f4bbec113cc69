"""Fit the kernel calibrations that Meshwright ships to public points, and write them as YAML and grids.

    python -m benchmarks.fit_kernels POINTS -o hwmodels/calibrations [--devices h100-sxm ...]

POINTS is a folder with gemm, attention_prefill, attention_decode, moe and elementwise CSV files of the
aiconfigurator databases and Vidur's profiles, as the importers write them; for the RTX cards, the one that
`evidence/fits/serving_points.py` writes. 30 % of the shapes are kept out
of a first fit, on which the errors in the files are stated; the constants themselves are of a second fit on
all points. What no source has measured is marked estimated. Run fit_attention.py next, for the attention of
training, and estimate_kernels.py for the devices that are like these.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from core.loading import build, read_mapping
from evidence.command import command
from hwmodels.device import Device, devices
from hwmodels.kernels.calibration import Calibration
from hwmodels.kernels.gemm import TileWave
from hwmodels.kernels.residual import ResidualGrid, load_grids
from profiles.fitting import Fit, calibrate, write_calibration
from profiles.fitting.operations import BACKWARD, DECODE, EXPERTS, FORWARD, RICH, SIMPLE, FittedOperation

Mapped = dict[str, Any]

# gpu column: device whose figures the fit is relative to, host link (B/s in one direction)
DEVICES = {
    "h100-sxm": ("h100-sxm", 53e9),
    "a100-sxm": ("a100-sxm-80gb", 25e9),
    "h200-sxm": ("h200-sxm", 53e9),
    "b200": ("b200", 53e9),
    "gb200": ("gb200", 350e9),
    "l40s": ("l40s", 25e9),
}
TABLES = ("gemm", "attention_prefill", "attention_decode", "moe", "elementwise")
DEFAULTS = {
    "gemm": "trtllm",
    "attention_prefill": "published",
    "attention_decode": "vllm",
    "moe": "trtllm",
    "elementwise": "torch",
}
# Cards of which one serving engine's kernels were measured; what those leave open is carried over.
SERVED = {"rtx-pro-6000": ("rtx-pro-6000", 53e9), "rtx-4090": ("rtx-4090", 25e9)}
SERVED_LIKE = "l40s"
SERVED_LIBRARY = "llmservingsim"
LIKE = {"h200-sxm": "h100-sxm", "gb200": "b200"}
NO_ERROR = {"shapes": 0, "median": 0.1, "p90": 0.25}
# Start-up over that of the shortest kernel, share of the bandwidth, gain while all lies in L2.
MEMORY_BOUND = {
    "elementwise": (1.0, 0.86, 0.3),
    "activation": (1.0, 0.85, 0.3),
    "rope": (1.0, 0.8, 0.3),
    "copy": (1.0, 0.87, 0.3),
    "norm": (1.3, 0.75, 0.3),
    "softmax": (1.3, 0.75, 0.3),
    "embedding": (1.5, 0.5, 0.0),
    "cross_entropy": (1.5, 0.75, 0.0),
    "optimizer": (2.0, 0.8, 0.0),
}
SHORTEST_S = {"ampere": 2.2e-6, "ada": 1.8e-6, "hopper": 1.6e-6, "blackwell": 1.6e-6}


def describe(row: Mapped) -> str:
    """One line on an entry's errors."""
    name = "/".join(part for part in (row["library"], row["operation"], row["dtype"]) if part)
    form, points = row["error"], row["error_with_points"]
    text = f"{name:45} {row['points']:6} points  form {form['median']:6.1%} / {form['p90']:6.1%}"
    return text + (f"  with points {points['median']:6.1%} / {points['p90']:6.1%}" if points else "")


def fit_device(gpu: str, folder: Path, out: Path, tables: Sequence[str]) -> Fit:
    """Fit one device's kernels to the points, and add what only tables or estimates know."""
    name, link = {**DEVICES, **SERVED}[gpu]
    device = devices.get(name)
    stored_grids: dict[str, ResidualGrid] = {}
    if gpu in SERVED:
        carried = {"name": gpu, "based_on": SERVED_LIKE, "status": "estimated", "source": "", "gemm": {}}
        base = Calibration.model_validate(carried | {"host_copy": {"bandwidth": link}})
    elif set(tables) == set(TABLES):
        base = Calibration.model_validate(skeleton(gpu, device, link))
    else:
        base = build(Calibration, read_mapping(out / f"{gpu}.yaml"), gpu, out)
        stored_grids = load_grids(Path(base.residuals)) if base.residuals else {}
    paths = [path for name in tables if (path := folder / f"{name}.csv.gz").is_file()]
    defaults: dict[str, str] = {**DEFAULTS} | ({"attention_decode": "trtllm"} if gpu == "gb200" else {})
    if gpu in SERVED:
        defaults = dict.fromkeys(TABLES, SERVED_LIBRARY)
    fitted = calibrate(
        paths,
        device,
        gpu=gpu,
        share=0.3,
        status="fitted-elsewhere",
        defaults=defaults,
        base=base,
        say=lambda line: print("   ", gpu, line, file=sys.stderr, flush=True),
    )
    fitted.calibration |= {
        "name": gpu,
        "source": "kernels of vLLM in LLMServingSim's profiles; what they leave open as on L40S"
        if gpu in SERVED
        else "aiconfigurator kernel databases, Vidur profiles, published tables",
    }
    fitted.grids = stored_grids | fitted.grids
    if gpu == "rtx-pro-6000":
        # Its bf16 products reach 0.84 of the peak, L40S's fp8 ones 0.5: its own shares are the better guess.
        del fitted.calibration["gemm"]["fp8"]
    if gpu == "a100-sxm":
        experts_from_dense(fitted)
    return fitted


def skeleton(gpu: str, device: Device, link: float) -> Mapped:
    """What stands where nothing was measured: generic forms, or those of the device it is like."""
    short = SHORTEST_S[device.generation.name]
    usual = "share of the bandwidth that fused kernels usually reach"
    started = {
        "name": gpu,
        "status": "estimated",
        "source": "generic",
        "launch_s": 4.5e-6,
        "gemm": {
            "bf16": estimated("generic", simple=SIMPLE.generic.model_dump(), rich=RICH.generic.model_dump())
        },
        "layouts": {
            "status": "estimated",
            "source": "no public measurement; the three layouts are taken as equal",
            "dgrad": 1.0,
            "wgrad": 1.0,
        },
        **{
            operation.name: {"bf16": generic(operation)} for operation in (FORWARD, BACKWARD, DECODE, EXPERTS)
        },
        "memory_bound": {
            kind: estimated(
                usual,
                form={
                    "overhead_s": float(f"{short * factor:.3g}"),
                    "memory_efficiency": share,
                    "l2_gain": gain,
                    "l2_fraction": 0.5,
                },
            )
            for kind, (factor, share, gain) in MEMORY_BOUND.items()
        },
        "host_copy": {
            "status": "estimated",
            "source": "data-sheet rate less 15 to 20 % of protocol",
            "bandwidth": link,
            "overhead_s": 1e-5,
        },
    }
    if gpu in LIKE:
        named = {"based_on": LIKE[gpu], "name": gpu, "status": "estimated", "source": ""}
        like = Calibration.model_validate(named).model_dump(exclude_none=True)
        started |= {
            operation.name: like[operation.name] for operation in (FORWARD, BACKWARD, DECODE, EXPERTS)
        }
    return started


def estimated(source: str, **more: Mapped) -> Mapped:
    """An entry that nobody measured."""
    return {"status": "estimated", "source": source, "error": NO_ERROR, **more}


def generic(operation: FittedOperation[Any]) -> Mapped:
    """An operation's generic form as an entry."""
    return estimated("generic", form=operation.generic.model_dump(exclude_none=True))


def experts_from_dense(fitted: Fit) -> None:
    """Grouped products at the dense product's constants, where only slow kernels were measured."""
    dense = TileWave(**fitted.calibration["gemm"]["bf16"]["rich"])
    shared = {
        name: value
        for name, value in dense.model_dump().items()
        if name in type(EXPERTS.generic).model_fields
    }
    form = EXPERTS.generic.model_copy(update=shared)
    fitted.calibration["grouped_gemm"]["bf16"] = {
        "status": "estimated",
        "source": "tile and wave constants of the dense product; routing kernels generic",
        "error": {"shapes": 0, "median": 0.15, "p90": 0.4},
        "form": form.model_dump(),
    }


@command
def main(
    points: Path,
    *,
    out: Annotated[Path, "-o"] = Path("hwmodels/calibrations"),
    devices: Annotated[Sequence[str], [*DEVICES, *SERVED]] = tuple(DEVICES),
    tables: Annotated[Sequence[str], TABLES, "fit only these, keep the rest of the files"] = TABLES,
) -> None:
    """Fit and write every device asked for."""
    for gpu in devices:
        began = time.perf_counter()
        fitted = fit_device(gpu, points, out, tables)
        files = write_calibration(fitted, out / f"{gpu}.yaml")
        sizes = ", ".join(f"{file.name} {file.stat().st_size / 1e3:.0f} kB" for file in files)
        print(f"{gpu}: {len(fitted.errors)} entries in {time.perf_counter() - began:.0f} s; {sizes}")
        for row in fitted.errors:
            print("  ", describe(row))
