"""Time of a matrix multiplication, dense or batched: two forms.

`TileWave` models a GEMM library: it cuts the output into tiles, may split the depth, and runs the tiles in
waves over the multiprocessors. Matrix units, the feed from L2 into a multiprocessor, or memory bound it.
`Roofline` (4 numbers) reads FLOPs and bytes only; it is the fallback and the fast form.

Shapes: the product of an m x k and a k x n matrix (`batch` of them). Seconds, bytes, FLOP/s.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import Field

from core.loading import Strict
from hwmodels.kernels.chip import Chip

Array = NDArray[np.floating]

# Rows x columns of an output tile, and the splits of the depth over thread blocks.
TILES = ((16, 128), (32, 128), (64, 64), (64, 128), (64, 256), (128, 64), (128, 128), (128, 256), (256, 128))
SPLITS = (1, 2, 3, 5, 8, 16, 32)
SHORTEST_SPLIT = 128
# Longer kernels reach the power limit; utilisation falls with the log of the length until clocks settle.
THROTTLE_START_S, THROTTLE_END_S = 200e-6, 20e-3
# Shapes evaluated together, so that intermediate arrays stay in the CPU's cache.
BLOCK = 256


class Roofline(Strict):
    """`overhead + (compute^p + memory^p)^(1/p)`: the simple form."""

    overhead_s: float = Field(ge=0)
    compute_efficiency: float = Field(gt=0)
    memory_efficiency: float = Field(gt=0)
    overlap_exponent: float = Field(gt=0)


class TileWave(Strict):
    """Constants of the tile-and-wave form; see `tile_wave_seconds`.

    They are fitted together and are not physical individually: the feed bounds a compute efficiency above 1.
    """

    overhead_s: float = Field(ge=0)
    compute_efficiency: float = Field(gt=0)
    """Share of the matrix peak that an infinitely large tile reaches."""
    memory_efficiency: float = Field(gt=0)
    overlap_exponent: float = Field(gt=0)
    """Overlap of memory traffic and computation: 1 adds their times, a large value takes the longer."""
    fixed_depth: float = Field(ge=0)
    """Prologue and epilogue of a tile, in equivalent depth (k)."""
    feed_bytes_per_flop: float = Field(gt=0)
    """Bytes from L2 into a multiprocessor per FLOP at peak."""
    feed_exponent: float = Field(default=4.0, gt=0)
    """Overlap of the feed and the matrix units, as above."""
    wave_quantisation: float = Field(ge=0, le=1)
    """Share of a partly filled last wave that costs a full wave."""
    split_overhead_s: float = Field(ge=0)
    reduction_efficiency: float = Field(gt=0)
    """Share of the memory bandwidth at which partial results of a split depth are reduced."""
    l2_reuse: float = Field(ge=0)
    """Bytes of activations that stay in L2 between kernels, in units of L2."""
    tile_spread: float = Field(gt=0)
    """How far tiles may be behind the fastest and count, in logs of time: see `power_mean`."""
    throttling: float = Field(ge=0)
    latency_waves: float = Field(ge=0)
    """Share of the multiprocessors that saturates the memory bandwidth, on the device of the constants.

    As many saturate it on a device with more of them: memory does not get slower."""


class GemmCalls(NamedTuple):
    """Equal-length arrays of GEMMs.

    `output_bytes` is bytes moved per output element, `speed` that of memory over the form's.
    """

    batch: Array
    m: Array
    n: Array
    k: Array
    output_bytes: float | Array
    speed: float | Array = 1.0


def read_once(shape: GemmCalls, window: Array, element_bytes: float) -> GemmCalls:
    """Products whose left operand has each element `window` times in memory but once."""
    left = shape.m * shape.k * element_bytes
    others = shape.n * shape.k * element_bytes + shape.m * shape.n * shape.output_bytes
    return shape._replace(speed=(left + others) / (left / window + others))


def roofline_seconds(form: Roofline, chip: Chip, shape: GemmCalls) -> Array:
    """Return kernel times of the simple form, in seconds, same shape as the arrays."""
    batch, m, n, k, output_bytes, _ = shape
    outputs = batch * m * n
    compute = outputs * k * (2.0 / (chip.peak * form.compute_efficiency))
    moved_bytes = batch * (m + n) * k * chip.element_bytes + outputs * output_bytes
    memory = moved_bytes * (1.0 / (chip.bandwidth * form.memory_efficiency))
    return form.overhead_s + power_norm(compute, memory, form.overlap_exponent)


def tile_wave_seconds(
    form: TileWave,
    chip: Chip,
    shape: GemmCalls,
    tiles: tuple[tuple[int, int], ...] = TILES,
    splits: tuple[int, ...] = SPLITS,
) -> Array:
    """Return kernel times of the rich form, in seconds, for one-dimensional arrays.

    For every tile and split, the waves of thread blocks take the longer of matrix units and L2 feed, and
    memory traffic overlaps them. A tile runs at its best split. Libraries do not always pick the fastest
    tile, so the result is a power mean over tiles, in which the fastest count most.
    """
    total = np.empty(shape.m.shape)
    for start in range(0, total.size, BLOCK):
        part = slice(start, start + BLOCK)
        output_bytes, speed = (
            figure[part] if isinstance(figure, np.ndarray) and figure.ndim else figure
            for figure in (shape.output_bytes, shape.speed)
        )
        block = GemmCalls(shape.batch[part], shape.m[part], shape.n[part], shape.k[part], output_bytes, speed)
        total[part] = _tile_wave_block(form, chip, block, tiles, splits)
    return total


def _tile_wave_block(
    form: TileWave, chip: Chip, shape: GemmCalls, tiles: tuple[tuple[int, int], ...], splits: tuple[int, ...]
) -> Array:
    # Candidates in single precision and microseconds: twice as fast, and exact to 1e-6.
    # Axes: tile, split, shape.
    batch, m, n, k = (a.astype(np.float32) for a in shape[:4])
    memory, reduction = _memory_us(form, chip, shape)
    per_flop = 1e6 * chip.multiprocessors / chip.peak
    deepest = float(k.max())
    used = [s for s in splits if s == 1 or deepest > s * (SHORTEST_SPLIT - 1)]
    split = np.array(used, dtype=np.float32)[:, None]
    rows, columns = (np.array(sizes, dtype=np.float64)[:, None, None] for sizes in zip(*tiles, strict=True))
    depth = np.ceil(k / split)
    # One tile's time depends on the depth alone, and products of one layer have few depths.
    depths, which = np.unique(k, return_inverse=True)
    steps = np.ceil(depths / split)

    row_blocks, column_blocks = (
        np.ceil(size / tile.astype(np.float32)) for size, tile in ((m, rows), (n, columns))
    )
    waves = (batch * row_blocks * column_blocks * np.float32(1.0 / chip.multiprocessors)) * split
    math_us = 2.0 * rows * columns * per_flop / form.compute_efficiency
    feed_us = (rows + columns) * chip.element_bytes * per_flop / form.feed_bytes_per_flop
    tile_us = power_norm(
        (steps + np.float32(form.fixed_depth)) * math_us.astype(np.float32),
        steps * feed_us.astype(np.float32),
        form.feed_exponent,
    )[..., which]
    fitted = chip.fitted_multiprocessors or chip.multiprocessors
    saturating = form.latency_waves * (fitted / chip.multiprocessors)
    stretched = memory * np.sqrt(1.0 + np.square(saturating / np.minimum(waves, 1.0)))
    us = power_norm(tile_us * rounds(waves, form.wave_quantisation), stretched, form.overlap_exponent)
    if len(used) > 1:
        parts = us[:, 1:]
        parts += np.float32(form.split_overhead_s * 1e6) + split[1:] * reduction
        np.copyto(parts, np.inf, where=depth[1:] < SHORTEST_SPLIT)
    us = power_mean(us.min(axis=1), form.tile_spread)
    flops = 2.0 * shape.batch * shape.m * shape.n * shape.k
    busy = np.maximum(flops / chip.peak, chip.busy_before_s)
    return form.overhead_s + 1e-6 * us * throttled(busy, form.throttling, chip.clock_share)


def _memory_us(form: TileWave, chip: Chip, shape: GemmCalls) -> tuple[Array, Array]:
    """Return microseconds of memory traffic, and of one pass over split results (single precision)."""
    batch, m, n, k, output_bytes, speed = shape
    weights = batch * n * k * chip.element_bytes
    others = batch * (m * k * chip.element_bytes + m * n * output_bytes)
    reread = 1.0 / (1.0 + (form.l2_reuse * chip.l2_bytes / (weights + others)) ** 2)
    memory = (weights + reread * others) * (1e6 / (chip.bandwidth * form.memory_efficiency)) / speed
    reduction = batch * m * n * (4e6 / (chip.bandwidth * form.reduction_efficiency))
    return memory.astype(np.float32), reduction.astype(np.float32)


def rounds(waves: Array, quantisation: float) -> Array:
    """Return the number of waves charged: the last wave counts in part, and at least one wave counts."""
    if quantisation == 1.0:
        return np.ceil(waves)
    part = waves.dtype.type(quantisation)
    return np.ceil(waves) * part + np.maximum(waves, 1.0) * (1 - part)


def throttled(busy_s: Array, throttling: float, clock_share: float = 1.0) -> Array:
    """Return the slowdown by the power limit of a kernel with `busy_s` seconds of matrix work.

    Args:
        busy_s: at the clock in use.
        throttling: slowdown per logarithm of time.
        clock_share: clock in use over the highest: clocks above the settled one fall, lower ones stay.
    """
    if clock_share < 1.0:
        busy_s = busy_s * clock_share
    slowdown = 1.0 + throttling * np.log1p(np.minimum(busy_s, THROTTLE_END_S) / THROTTLE_START_S)
    return slowdown if clock_share == 1.0 else np.maximum(clock_share * slowdown, 1.0)


def power_norm(a: Array, b: Array, exponent: float) -> Array:
    """Return (a^p + b^p)^(1/p): a smooth maximum of two overlapped times."""
    high = np.maximum(a, b)
    ratio = np.minimum(a, b) / high
    if exponent == 4.0 and ratio.dtype == np.float64:
        # A tenth of the time of two powers.
        return high * np.sqrt(np.sqrt(1.0 + np.square(np.square(ratio))))
    return high * (1.0 + ratio**exponent) ** (1.0 / exponent)


def power_mean(times: Array, spread: float) -> Array:
    """Return the power mean over the first axis with exponent -1/spread, in double precision.

    It tends to the least time as the spread tends to 0, equals it where all times are equal, and rises with
    every time.
    """
    least = times.min(axis=0)
    nearness = (least / times) ** (1.0 / spread)
    # Summed in double precision: a shape costs the same alone and in a batch.
    return least * nearness.mean(axis=0, dtype=np.float64) ** -spread


def flat_shape(
    batch: ArrayLike, m: ArrayLike, n: ArrayLike, k: ArrayLike, output_bytes: ArrayLike
) -> tuple[GemmCalls, tuple[int, ...]]:
    """Broadcast the arguments, return them as one-dimensional arrays and the shape they had."""
    arrays = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (batch, m, n, k)))
    flat = [np.ascontiguousarray(a).ravel() for a in arrays]
    element_bytes = np.asarray(output_bytes, dtype=np.float64)
    if element_bytes.ndim:
        element_bytes = np.broadcast_to(element_bytes, arrays[0].shape).ravel()
    return GemmCalls(flat[0], flat[1], flat[2], flat[3], element_bytes), arrays[0].shape
