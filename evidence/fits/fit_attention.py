"""Fit training attention to published tables, and write it into the calibrations of the fitted devices.

    python -m benchmarks.fit_attention -o hwmodels/calibrations

published_attention.csv holds FLOP/s of FlashAttention-2, -3, -4 and cuDNN on H100 and B200. Benchmarks run a
kernel long enough for clocks to settle, so these forms have no throttling (the exceptions are in SETTLING and
A100_SETTLING).
Where only the non-causal backward pass was published, what a causal mask costs is that of FlashAttention-3.
Other devices take a kernel over at its share of the peak, A100 at the shares that its paper states, L40S at
those that vLLM's kernel reaches.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from core.loading import read_mapping
from evidence.command import command
from hwmodels.device import devices
from hwmodels.kernels.attention import AttentionCalls, FlashAttention, flash_attention_seconds
from hwmodels.kernels.calibration import calibrations
from hwmodels.kernels.chip import chip
from hwmodels.kernels.gemm import THROTTLE_END_S, THROTTLE_START_S
from hwmodels.kernels.model import BACKWARD_FLOPS
from profiles.fitting.holdout import errors, held_out
from profiles.fitting.operations import FORWARD
from profiles.fitting.operations.attention import NUMBERS
from profiles.fitting.robust import Number, fit
from profiles.fitting.write import write_mapping

Mapped = dict[str, Any]
Columns = dict[str, np.ndarray]

PUBLISHED = Path(__file__).with_name("published_attention.csv")
FA2, FA3, FA4, CUDNN = "flash-attention-2", "flash-attention-3", "flash-attention-4", "cudnn"
# Kernels of a device, the default first: what TransformerEngine and PyTorch choose.
KERNELS = {
    "h100-sxm": (CUDNN, FA3, FA2),
    "h200-sxm": (CUDNN, FA3, FA2),
    "b200": (FA4,),
    "gb200": (FA4,),
    "a100-sxm": (FA2,),
    "l40s": (FA2,),
}
# Dao 2023, FlashAttention-2: up to these shares of the A100's peak, at head dimension 128.
A100_SHARES = {"forward": 0.73, "backward": 0.63}
# An A100 runs FlashAttention-2 at 1,200 of 1,410 MHz once it reaches its power limit: 184 to 187 TFLOP/s
# forward with heads of 128 over 4,096 positions, 156 to 159 causal (liangan1/GPU_travel,
# performance/flash-attn/README.md); vLLM's table has 155 causal there.
A100_SETTLING = 1410 / 1200
# The one backward table of FlashAttention-4 is of a run whose forward reached 1,418 TFLOP/s (causal, batch 4,
# sequence 8192, 16 heads of 128); that kernel settles at 1,237 in some 50 ms (flashinfer pull request 2899).
SETTLING = {(FA4, "backward"): 1418 / 1237}
# Backward speed with heads of 64 over 128 where nobody published it: cuDNN's on H100.
NARROW_BACKWARD = 0.823
CAUSAL = (Number("causal_share", 0.7, 1.1, 1), Number("causal_keys", 1.0, 1000.0, 1))
UNKNOWN = {"shapes": 0, "median": 0.1, "p90": 0.25}


class PublishedKernel(NamedTuple):
    """One direction of one kernel."""

    form: FlashAttention
    error: Mapped
    source: str


def entry(gpu: str, library: str, kernel: PublishedKernel) -> Mapped:
    """A calibration entry."""
    return {
        "status": "fitted-elsewhere" if gpu in ("h100-sxm", "b200") else "estimated",
        "source": f"{library}: {kernel.source}",
        "error": kernel.error,
        "form": kernel.form.model_dump(exclude_none=True),
    }


def published_kernels() -> dict[tuple[str, str], PublishedKernel]:
    """Fit every published kernel and direction."""
    with PUBLISHED.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kernels: dict[tuple[str, str], PublishedKernel] = {}
    for library in (FA3, FA2, CUDNN, FA4):
        of_library = [row for row in rows if row["library"] == library]
        forward = [row for row in of_library if row["direction"] == "forward"]
        backward = [row for row in of_library if row["direction"] == "backward"]
        kernels[library, "forward"] = fitted(
            forward, FORWARD.generic.model_copy(update={"causal_keys": 30.0})
        )
        like = kernels[FA3, "backward"].form if library != FA3 else kernels[FA3, "forward"].form
        kernels[library, "backward"] = settled(
            fitted(backward, like), SETTLING.get((library, "backward"), 1.0)
        )
    return kernels


def settled(training: PublishedKernel, loss: float) -> PublishedKernel:
    """The same kernel with ``loss`` times its seconds at settled clocks; an efficiency for heads of 64."""
    efficiency = {64: training.form.efficiency[128] * NARROW_BACKWARD} | training.form.efficiency
    form = slowed(training.form.model_copy(update={"efficiency": efficiency}), loss)
    return training._replace(form=form)


def slowed(form: FlashAttention, loss: float) -> FlashAttention:
    """The form with a throttling by which long kernels take ``loss`` times their seconds at full clocks."""
    throttling = (loss - 1.0) / np.log1p(THROTTLE_END_S / THROTTLE_START_S)
    return form.model_copy(update={"throttling": float(f"{throttling:.3g}")})


def fitted(rows: list[dict[str, str]], prior: FlashAttention) -> PublishedKernel:
    """Fit one kernel in one direction, and state its error on rows kept out of a first fit."""
    columns = {
        name: np.array([float(row[name]) for row in rows]) for name in rows[0] if is_number(rows[0][name])
    }
    products = BACKWARD_FLOPS if rows[0]["direction"] == "backward" else 1.0
    begin = prior_for(prior, columns)
    causal = columns["causal"]
    free = NUMBERS + CAUSAL if 0 < causal.sum() < len(causal) else NUMBERS
    numbers = [number for number in free if number.path != "overhead_s"]
    device = devices.get({"h100-sxm": "h100-sxm", "b200": "b200"}[rows[0]["gpu"]])
    figures = chip(device, "bf16")
    measured = seconds_of(columns, products)

    def predict(form: FlashAttention, selected: np.ndarray) -> np.ndarray:
        batch, seq, heads, head_dim = (
            columns[name][selected] for name in ("batch", "seq", "heads", "head_dim")
        )
        call = AttentionCalls(batch, seq, seq, heads, heads, head_dim)
        both = [flash_attention_seconds(form, figures, call, mask, False, products) for mask in (True, False)]
        return np.where(causal[selected] > 0, both[0], both[1])

    everything = np.arange(len(rows))
    error = dict(UNKNOWN)
    if len(rows) >= 12:
        out = held_out(everything.astype(str), 0.3)
        seen = everything[~out]
        first = fit(begin, numbers, lambda form, index: predict(form, seen[index]), measured[seen])
        left = errors(predict(first, everything[out]), measured[out])
        error = left.model_dump(include={"shapes", "median", "p90"})
    source = ", ".join(sorted({row["source"] for row in rows}))
    return PublishedKernel(fit(begin, numbers, predict, measured), error, source)


def is_number(text: str) -> bool:
    """Whether a cell holds a number."""
    return text.replace(".", "", 1).isdigit()


def prior_for(prior: FlashAttention, columns: Columns) -> FlashAttention:
    """The form to begin with: efficiencies at the head dimensions of the rows, settled clocks."""
    dims = np.unique(columns["head_dim"]).astype(int)
    lengths = sorted(prior.efficiency)
    spread = np.interp(np.log(dims), np.log(lengths), [prior.efficiency[d] for d in lengths])
    return prior.model_copy(
        update={
            "efficiency": dict(zip(dims.tolist(), spread.tolist(), strict=True)),
            "throttling": 0.0,
            "overhead_s": 5e-6,
            "memory_efficiency": 0.8,
            "overlap_exponent": 2.0,
        }
    )


def seconds_of(columns: Columns, products: float) -> np.ndarray:
    """Kernel times of the published FLOP/s; a causal mask counts half of the FLOPs."""
    flops = 4.0 * products * columns["batch"] * columns["heads"] * columns["seq"] ** 2 * columns["head_dim"]
    return flops / np.where(columns["causal"] > 0, 2.0, 1.0) / (columns["tflops"] * 1e12)


def on_device(
    gpu: str, library: str, direction: str, published: dict[tuple[str, str], PublishedKernel]
) -> PublishedKernel:
    """A kernel on a device: as published there, or carried over."""
    kernel = published[library, direction]
    if gpu in ("h100-sxm", "b200"):
        return kernel
    error = kernel.error | {name: 1.5 * kernel.error[name] for name in ("median", "p90")}
    if gpu == "a100-sxm":
        share = A100_SHARES[direction]
        source = (
            f"Dao 2023, up to {share:.0%} of the A100's peak; settled clocks from liangan1/GPU_travel; "
            f"dependence on shape from {kernel.source}"
        )
        form = slowed(reaching(kernel.form, share, direction), A100_SETTLING)
        return PublishedKernel(form, error, source)
    if gpu == "l40s":
        served = calibrations.get(gpu).libraries["vllm"].attention["bf16"]
        ratio = kernel.form.efficiency[128] / published[library, "forward"].form.efficiency[128]
        source = f"the share of the peak that vLLM's kernel reaches; dependence on shape from {kernel.source}"
        return PublishedKernel(at_share(kernel.form, served.form.efficiency[128] * ratio), UNKNOWN, source)
    return PublishedKernel(kernel.form, error, f"{kernel.source}, at the same share of the peak")


def reaching(form: FlashAttention, share: float, direction: str) -> FlashAttention:
    """The form with which an A100 reaches a share of its peak on one long sequence without a mask."""
    figures = chip(devices.get("a100-sxm-80gb"), "bf16")
    products = BACKWARD_FLOPS if direction == "backward" else 1.0
    batch, length, heads, head_dim = (np.array([value]) for value in (1.0, 16384.0, 16.0, 128.0))
    flops = 4.0 * products * heads * length**2 * head_dim
    target, scaled = share, form
    for _ in range(4):
        scaled = at_share(form, target)
        call = AttentionCalls(batch, length, length, heads, heads, head_dim)
        reached = (
            flops / flash_attention_seconds(scaled, figures, call, False, False, products) / figures.peak
        )
        target *= share / float(reached[0])
    return scaled


def at_share(form: FlashAttention, share: float) -> FlashAttention:
    """The form with another share of the peak at head dimension 128, and the same ratios elsewhere."""
    scaled = {
        key: float(f"{value * share / form.efficiency[128]:.4g}") for key, value in form.efficiency.items()
    }
    return form.model_copy(update={"efficiency": scaled})


@command
def main(
    *,
    out: Annotated[Path, "-o"] = Path("hwmodels/calibrations"),
    devices: Annotated[Sequence[str], list(KERNELS)] = tuple(KERNELS),
) -> None:
    """Write forward and backward attention into each calibration."""
    published = published_kernels()
    for gpu in devices:
        path = out / f"{gpu}.yaml"
        content = read_mapping(path)
        libraries = content.setdefault("libraries", {})
        for place, library in enumerate(KERNELS[gpu]):
            holder = libraries.setdefault(library, {}) if place else content
            for direction, name in (("forward", "attention"), ("backward", "attention_backward")):
                kernel = on_device(gpu, library, direction, published)
                holder.setdefault(name, {})["bf16"] = entry(gpu, library, kernel)
        write_mapping(content, path)
        print(gpu, ", ".join(KERNELS[gpu]))
