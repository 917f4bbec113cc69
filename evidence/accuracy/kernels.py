"""Errors of the kernel models on measured points, and how many shapes a second they evaluate.

    python -m benchmarks.kernels [POINTS ...]

POINTS are folders of point files (gemm.csv, attention_prefill.csv, ... plain or zipped). Each row of the
table is an operation on a GPU in a dtype: median and 90th percentile of the relative error, all kernels,
then those longer and those shorter than 50 us; with the correction by points, then the form alone. The
errors that the calibrations state are those on shapes their first fit did not see; those printed here are
of whatever points are given.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import MeshwrightError
from hwmodels.device import devices
from profiles.kernel_validation import validate_kernels

COLUMNS = f"{'operation':18} {'gpu':10} {'dtype':11} {'points':>7}"
HEADER = f"{COLUMNS}  {'all':>13} {'large':>13} {'small':>13}  {'form alone':>13}"


def main() -> int:
    """Print the table of errors for the folders given, and the speed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("points", nargs="*", type=Path)
    parser.add_argument("--libraries", action="store_true", help="one more row for each library")
    arguments = parser.parse_args()
    try:
        for folder in arguments.points:
            errors(folder, arguments.libraries)
    except MeshwrightError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    speed()
    return 0


def errors(folder: Path, libraries: bool) -> None:
    """Print the errors on one folder's points."""
    validated = validate_kernels(folder)
    print(f"{folder}: {validated.dropped} impossible points dropped")
    print(HEADER)
    for row in validated.rows:
        name = f"{row['operation']:18} {row['gpu']:10} {row['dtype']:11} {row['points']:7}"
        print(f"{name}  {_pairs(row)}  {_pair(row['form_alone'])}")
        for part in row["libraries"] if libraries and len(row["libraries"]) > 1 else ():
            print(f"{'':29} {part['library'][:11]:11} {part['points']:7}  {_pairs(part)}")
    for row in validated.skipped:
        print("skipped:", row)


def _pairs(row: dict) -> str:
    return " ".join(_pair(row, kind) for kind in ("", "large_", "small_"))


def _pair(row: dict, kind: str = "") -> str:
    median, p90 = row[f"{kind}median_error"], row[f"{kind}p90_error"]
    return f"{'-':>13}" if median is None else f"{100 * median:5.1f} / {100 * p90:5.1f}"


def speed() -> None:
    """Print shapes a second of processor time (one core), for shapes drawn at random."""
    kernels = devices.get("h100-sxm").kernels
    random = np.random.default_rng(0)

    def sizes(count: int, low: float, high: float) -> np.ndarray:
        return np.round(2.0 ** random.uniform(low, high, count))

    few = 200_000
    gemms: Any = [sizes(few, 5, 15) for _ in range(3)]
    calls = [sizes(few, 0, 7), sizes(few, 7, 14), np.full(few, 32.0), np.full(few, 8.0), np.full(few, 128.0)]
    timed: list[tuple[str, int, Callable[[], object]]] = [
        ("gemm, rich form alone", few, lambda: kernels.uncorrected().gemm(*gemms)),
        ("gemm, rich form with points", few, lambda: kernels.gemm(*gemms)),
        ("attention, forward", few, lambda: kernels.attention(calls[0], calls[1], *calls[1:])),
        ("attention, decode", few, lambda: kernels.attention_decode(*calls)),
        ("grouped gemm", few, lambda: kernels.grouped_gemm(gemms[0], gemms[1], gemms[2], 8)),
    ]
    for name, count, call in timed:
        best = min(_seconds(call) for _ in range(3))
        print(f"{name:30} {count / best / 1e6:8.2f} M shapes/s")


def _seconds(call: Callable[[], object]) -> float:
    # Of the processor, so that a busy machine does not count.
    began = time.process_time()
    call()
    return time.process_time() - began


if __name__ == "__main__":
    sys.exit(main())
