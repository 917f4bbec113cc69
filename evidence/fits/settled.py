"""Rates of long matrix products, from which the devices' ``settled_flops`` are taken.

    python -m benchmarks.settled POINTS [POINTS ...]

POINTS are folders with a file of GEMM points. Products of many milliseconds run at the clocks that the power
limit leaves. Each row is a GPU, a format and a source: the products of at least 5 and of at least 20 ms with
all sides at least 1,024, and the median of their TFLOP/s. The last column is the settled rate: the median at
20 ms, at 5 ms where fewer than five products take 20. In NVFP4 it is that of products of 1 to 3 ms, as steps
have them: a third of such a step is other kernels, so its products never run in a loop of their own. Tables
of serving libraries cast the 16-bit activations of 8- and 4-bit products in the same call: the calibration's
time of the cast is taken off. Outputs of 2 GiB and more are left out: NVFP4 runs another kernel there, at
half the rate whatever the depth (GB300, 32,768 x 51,200: 2,790 to 2,890 TFLOP/s with 4,096 to 51,200 of
depth; 16,384 x 51,200: 4,630 to 4,880).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from core.errors import UnknownNameError
from evidence.command import command
from hwmodels.device import devices
from profiles.points import Points, files, read

LONG_US = (5e3, 20e3)
IN_STEPS_US = {"nvfp4": (1e3, 3e3)}
"""Lengths of products in steps of formats whose steps have many other kernels."""
LEAST_SIDE = 1024
MOST_OUTPUT_BYTES = 2**31
LEAST_PRODUCTS = 5


def rates(points: Points) -> list[str]:
    """One line a GPU, format and source."""
    lines = []
    sides = [points[name].astype(float) for name in "mnk"]
    keys = [points[name].astype(str) for name in ("gpu", "dtype", "source")]
    wide = (np.min(sides, axis=0) >= LEAST_SIDE) & (2.0 * sides[0] * sides[1] < MOST_OUTPUT_BYTES)
    large, rate = wide & (points["time_us"] >= LONG_US[0]), np.zeros(len(wide))
    for gpu, dtype, source in sorted(set(zip(*(key[large] for key in keys), strict=True))):
        of_table = wide & (keys[0] == gpu) & (keys[1] == dtype) & (keys[2] == source)
        m, n, k = (side[of_table] for side in sides)
        kernel_us = points["time_us"][of_table] - 1e6 * cast(gpu, dtype, source, m, n, k)
        rate[of_table] = 2.0 * m * n * k / kernel_us / 1e6
        same, long = (of_table & (points["time_us"] >= least) for least in LONG_US)
        words = " ".join(
            f"{part.sum():7} {np.median(rate[part]) if part.any() else float('nan'):8.0f}"
            for part in (same, long)
        )
        settled = long if long.sum() >= LEAST_PRODUCTS else same
        if dtype in IN_STEPS_US:
            shortest, longest = IN_STEPS_US[dtype]
            settled = of_table & (points["time_us"] >= shortest) & (points["time_us"] < longest)
        lines.append(f"{gpu:12} {dtype:10} {source:24} {words} {np.median(rate[settled]):8.0f}")
    return lines


def cast(gpu: str, dtype: str, source: str, m: np.ndarray, n: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Seconds of a call's cast of its activations, zero where the device or the format is not calibrated."""
    try:
        kernels = devices.get(gpu).kernels
    except UnknownNameError:
        return np.zeros(len(m))
    kernels = kernels.using(source.partition(":")[2].partition("-")[0]).uncorrected()
    casts, plain = (kernels.gemm(m, n, k, dtype, quantises=quantises) for quantises in (True, False))
    return casts - plain


@command
def main(points: Sequence[Path]) -> None:
    """Print the table."""
    counts = f"{'5 ms':>7} {'TFLOP/s':>8} {'20 ms':>7} {'TFLOP/s':>8}"
    print(f"{'gpu':12} {'dtype':10} {'source':24} {counts} {'settled':>8}")
    for folder in points:
        for line in rates(read(files(folder)["gemm"])):
            print(line)
