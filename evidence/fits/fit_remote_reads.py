"""Fit the all-reduce kernels of serving engines (remote reads over NVLink or PCIe) to measured ones.

    python -m benchmarks.fit_remote_reads COLLECTIVES.csv[.gz]

Prints, for each kind of link, the constants and the error of the faster of one shot and two shots on vLLM's
kernel up to 8 MiB, beside the error of NCCL's time in its place.
"""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np

from evidence.command import command
from hwmodels.collectives.remote_reads import RemoteReads, remote_read_seconds
from profiles.fitting.robust import Number, fit

LARGEST = 8 * 2**20
LINKS = {
    "nvlink3": (("a100-sxm",), 300e9),
    "nvlink4": (("h100-sxm", "h200-sxm"), 450e9),
    "nvlink5": (("b200", "gb200"), 900e9),
    "pcie4": (("l40s",), 27e9),
    "pcie5": (("rtx-pro-6000-server",), 54e9),
}
NUMBERS = (
    Number("start_s", 1e-6, 3e-5, 0),
    Number("rank_s", 1e-9, 5e-6, 0),
    Number("second_s", 1e-8, 2e-5, 0),
    Number("efficiency", 0.1, 1.0, 0),
)


@command
def main(collectives: Path) -> int:
    """Print the constants."""
    with gzip.open(collectives, "rt", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["op"] == "all_reduce" and row["dtype"] == "fp16"]
    for link, (systems, bandwidth) in LINKS.items():
        of_systems = [row for row in rows if row["system"] in systems and int(row["bytes"]) <= LARGEST]
        # vLLM turns its kernel off for more than two ranks over PCIe; on NVLink 5 pairs and groups of 8 run
        # different kernels, and groups of 8 are served.
        only = {"pcie4": "2", "pcie5": "2", "nvlink5": "8"}.get(link)
        of_systems = [row for row in of_systems if only is None or row["n_gpus"] == only]
        custom = [row for row in of_systems if "custom-vllm" in row["source"]]
        ranks, size, seconds = (
            np.array([float(row[name]) for row in custom]) for name in ("n_gpus", "bytes", "time_us")
        )
        seconds = seconds * 1e-6
        prior = RemoteReads(start_s=5e-6, rank_s=2e-7, second_s=3e-6, efficiency=0.7)

        def predict(
            form: RemoteReads,
            part: np.ndarray,
            ranks: np.ndarray = ranks,
            size: np.ndarray = size,
            bandwidth: float = bandwidth,
        ) -> np.ndarray:
            return remote_read_seconds(form, bandwidth, ranks[part], size[part])

        form = fit(prior, NUMBERS, predict, seconds)
        wrong = np.abs(predict(form, np.arange(len(ranks))) / seconds - 1.0)
        values = ", ".join(f"{n.path}: {getattr(form, n.path):.3g}" for n in NUMBERS)
        print(f"{link}: {{{values}}}  {np.median(wrong):.1%} / {np.quantile(wrong, 0.9):.1%} of {len(ranks)}")
    return 0
