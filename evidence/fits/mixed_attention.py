"""Attention of steps that mix a prefill chunk with decodes: predicted against measured, and the fit.

    python -m benchmarks.mixed_attention TABLES [--fit]

TABLES is the folder that `evidence/fits/serving_points.py` reads. A row is a model on a GPU: median and 90th
percentile of the relative error, of the sum of the two kernels and of the mixed form, for all steps and for
those with 32 decodes or more. `--fit` fits the form's constants to all tables together and prints them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from evidence.command import command
from evidence.fits.serving_points import HEAD_DIM, LayerTable, read
from hwmodels.device import devices
from hwmodels.kernels.attention import FlashAttention
from hwmodels.kernels.attention_mixed import DecodesInPrefill, MixedDecodes, mixed_seconds
from hwmodels.kernels.chip import Chip, chip
from profiles.fitting.robust import Number, fit

Array = NDArray[np.floating]

MANY = 32
SAMPLE = 2500
NUMBERS = (
    Number("row_share", 0.05, 2.0, 0),
    Number("fixed_keys", 1.0, 2000.0, 0),
    Number("longest_block", 0.01, 2.0, 0),
    Number("memory_efficiency", 0.3, 3.0, 0),
    Number("blocks_in_flight", 0.1, 8.0, 0),
    Number("overlap_exponent", 0.7, 8.0, 0),
)


class Steps(NamedTuple):
    """The mixed steps of one table, with both kernels' times alone."""

    name: str
    kernel: FlashAttention
    chip: Chip
    chunk_s: Array
    decode_s: Array
    decodes: MixedDecodes
    measured_s: Array


def _steps(table: LayerTable) -> Steps:
    columns = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")
    rows = np.array([[float(row[name]) for name in columns] for row in table.rows])
    rows = rows[(rows[:, 0] > 0) & (rows[:, 2] > 0)]
    chunk, before, decodes, cached, microseconds = rows.T
    device, heads, kv_heads = devices.get(table.gpu), table.shape.heads, table.shape.kv_heads
    kernels, ones = device.kernels, np.ones_like(chunk)
    alone = kernels.attention(1, chunk, before + chunk, heads, kv_heads, HEAD_DIM, appends=True)
    beside = kernels.attention_decode(decodes, cached, heads, kv_heads, HEAD_DIM, cache_in_l2=True)
    mixed = MixedDecodes(decodes, cached, heads * ones, kv_heads * ones, HEAD_DIM * ones, 2.0)
    name = f"{table.gpu}, {heads} and {kv_heads} heads"
    kernel = kernels.calibration.attention["bf16"].form
    return Steps(name, kernel, chip(device, "bf16"), alone, beside, mixed, microseconds * 1e-6)


def _predicted(form: DecodesInPrefill, steps: Steps, selected: NDArray[np.intp] | None = None) -> Array:
    part = slice(None) if selected is None else selected
    decodes = MixedDecodes(*(values[part] for values in steps.decodes[:5]), kv_bytes=2.0)
    return mixed_seconds(form, steps.kernel, steps.chip, steps.chunk_s[part], decodes)


def _fitted(steps: list[Steps]) -> DecodesInPrefill:
    random = np.random.default_rng(0)
    samples = [np.sort(random.permutation(len(step.measured_s))[: SAMPLE // len(steps)]) for step in steps]
    measured = np.concatenate([step.measured_s[part] for step, part in zip(steps, samples, strict=True)])

    def predict(form: DecodesInPrefill, _: NDArray[np.intp]) -> Array:
        return np.concatenate(
            [_predicted(form, step, part) for step, part in zip(steps, samples, strict=True)]
        )

    return fit(DecodesInPrefill(), NUMBERS, predict, measured)


def _pair(predicted: Array, measured: Array) -> str:
    wrong = np.abs(predicted / measured - 1.0)
    return f"{100 * np.median(wrong):5.1f} / {100 * np.quantile(wrong, 0.9):5.1f}"


@command
def main(tables: Path, *, fit: bool = False) -> None:
    """Print the errors."""
    steps = [_steps(table) for table in read(tables) if table.kind == "attention"]
    form = _fitted(steps) if fit else DecodesInPrefill()
    print(form)
    print(f"{'':34} {'sum':>13} {'mixed':>13}   {MANY} decodes or more: sum, mixed")
    for step in steps:
        both = (step.chunk_s + step.decode_s, _predicted(form, step))
        many = step.decodes.sequences >= MANY
        parts = [
            _pair(seconds[selected], step.measured_s[selected])
            for selected in (many | True, many)
            for seconds in both
        ]
        print(f"{step.name:34} {parts[0]} {parts[1]}   {parts[2]} {parts[3]}")
