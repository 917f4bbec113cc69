"""Expert layers as a serving engine runs them: predicted against measured, by tokens and experts hit.

    python -m benchmarks.served_experts TABLES [--fit]

TABLES is the folder that `benchmarks.serving_points` reads; its `..._moe.csv.gz` state how many experts a
batch of tokens hits. `--fit` fits the grouped products' constants to them and prints a calibration's entry.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

from evidence.command import command
from evidence.fits.serving_points import SOURCE, LayerTable, read
from hwmodels.device import Device, devices
from hwmodels.kernels import grouped_gemm
from hwmodels.kernels.chip import Chip, chip
from profiles.fitting.holdout import errors
from profiles.fitting.robust import Number, fit

TOP_K = 8
NUMBERS = (
    Number("served_memory_efficiency", 0.5, 1.0, 0),
    Number("compute_efficiency", 0.1, 2.0, 0),
    Number("fixed_depth", 1.0, 3000.0, 0),
    Number("feed_bytes_per_flop", 0.002, 0.5, 0),
)


def measured(table: LayerTable, device: Device, fits: bool) -> None:
    """Print the error on one measured table, in all and by experts hit."""
    tokens, hit, microseconds = (
        np.array([float(row[name]) for row in table.rows])
        for name in ("tokens", "activated_experts", "time_us")
    )
    figures, shape = chip(device, "bf16"), table.shape
    everything = 128.0 + 0.0 * tokens
    layer = grouped_gemm.Experts(
        tokens * TOP_K,
        tokens,
        everything * 0 + shape.hidden,
        everything * 0 + shape.feed_forward,
        everything,
        0.0 * tokens,
        1.0 + 0.0 * tokens,
        hit,
    )
    form = device.kernels.calibration.grouped_gemm["bf16"].form
    if fits:
        form = fitted(form, figures, layer, microseconds * 1e-6)
        ratios = errors(served(form, figures, layer), microseconds * 1e-6)
        entry = {"status": "fitted-elsewhere", "source": f"{len(tokens)} expert layers of {SOURCE}"}
        entry |= {"error": ratios.model_dump(exclude_none=True), "form": form.model_dump()}
        print(yaml.safe_dump({"grouped_gemm": {"bf16": entry}}, sort_keys=False))
    seconds = served(form, figures, layer)
    wrong = np.abs(seconds / (microseconds * 1e-6) - 1.0)
    print(f"{table.gpu}: {np.median(wrong):.1%} median, {np.quantile(wrong, 0.9):.1%} 90th percentile")
    for count in np.unique(hit):
        selected = hit == count
        ratio = np.median(seconds[selected] / microseconds[selected] * 1e6)
        print(f"  {count:4.0f} experts hit: predicted / measured {ratio:.2f}")


def served(form: grouped_gemm.GroupedTileWave, figures: Chip, layer: grouped_gemm.Experts) -> np.ndarray:
    """Seconds of layers as engines run them."""
    return grouped_gemm.expert_layer_seconds(form.served(), figures, layer)


def fitted(
    form: grouped_gemm.GroupedTileWave, figures: Chip, layer: grouped_gemm.Experts, seconds: np.ndarray
) -> grouped_gemm.GroupedTileWave:
    """Return the form whose served layers are nearest to the measured ones."""

    def predict(kernel: grouped_gemm.GroupedTileWave, rows: np.ndarray) -> np.ndarray:
        part = grouped_gemm.Experts(*(np.asarray(values)[rows] for values in layer))
        return served(kernel, figures, part)

    return fit(form, NUMBERS, predict, seconds)


@command
def main(tables: Path, *, fit: bool = False) -> None:
    """Print the tables."""
    for table in read(tables):
        if table.kind == "moe":
            measured(table, devices.get(table.gpu), fit)
