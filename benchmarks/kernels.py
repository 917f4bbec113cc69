"""Speed of the kernel models: shapes a second on one core, for shapes drawn at random.

    python -m benchmarks.kernels

Their errors on measured points: ``meshwright validate --kernels POINTS``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from evidence.command import command
from hwmodels.device import devices


def _seconds(call: Callable[[], object]) -> float:
    # Of the processor, so that a busy machine does not count.
    began = time.process_time()
    call()
    return time.process_time() - began


@command
def main() -> None:
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
