"""Matrix products: the tile-and-wave form, and the roofline for few points or far extrapolation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from hwmodels.kernels.calibration import Quantisation
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.gemm import (
    THROTTLE_END_S,
    THROTTLE_START_S,
    GemmCalls,
    Roofline,
    TileWave,
    roofline_seconds,
    tile_wave_seconds,
)
from profiles.fitting.operations.operation import Array, FittedOperation, floats, joined
from profiles.fitting.residuals import Covariance, Smoother
from profiles.fitting.robust import Number
from profiles.points import Points

SHORT_S = (0.3e-3, 1.5e-3)
"""Matrix units are busy so long in kernels that are large, and over before clocks fall."""
FEWEST_LONG = 8
LOW_PRECISION = ("fp8", "fp8_block", "mxfp8", "nvfp4")


class QuantisingRoofline(Roofline):
    """The simple form with the cast of the activations inside the call."""

    quantisation_s: float = Field(default=3e-6, ge=0)
    quantisation_efficiency: float = Field(default=0.4, gt=0)


class QuantisingTileWave(TileWave):
    """The rich form with the cast of the activations inside the call."""

    quantisation_s: float = Field(default=3e-6, ge=0)
    quantisation_efficiency: float = Field(default=0.4, gt=0)


def with_cast(operation: FittedOperation[Any]) -> FittedOperation[Any]:
    """Return the operation for points whose calls cast inside; the product's overhead stays at its prior."""
    numbers = tuple(number for number in operation.numbers if number.path != "overhead_s")
    return replace(operation, numbers=numbers + CAST_NUMBERS)


def settled_throttling(points: Points, chip: Chip, assumed: float) -> float:
    """Return the throttling that the points show: the best rates of short kernels over those of long ones.

    A free fit takes the slow fall of the rate with length for other slow changes with size, and products of
    training, longer than any point, would pay for it. `assumed` where too few long kernels show it.
    """
    m, n, k = floats(points, "m", "n", "k")
    flops = 2.0 * m * n * k
    busy, rate = flops / chip.peak, flops / points["time_us"]
    short, long = (busy > SHORT_S[0]) & (busy < SHORT_S[1]), busy > 0.75 * THROTTLE_END_S
    if min(short.sum(), long.sum()) < FEWEST_LONG:
        return assumed
    loss = np.quantile(rate[short], 0.9) / np.quantile(rate[long], 0.9)
    early = np.log1p(np.median(busy[short]) / THROTTLE_START_S)
    late = np.log1p(THROTTLE_END_S / THROTTLE_START_S)
    return float(f"{max(0.0, (loss - 1.0) / (late - loss * early)):.3g}")


def at_throttling(
    operation: FittedOperation[Any], form: TileWave, value: float
) -> tuple[FittedOperation[Any], TileWave]:
    """Return the operation without throttling among its free numbers, and the form with this value."""
    numbers = tuple(number for number in operation.numbers if number.path != "throttling")
    return replace(operation, numbers=numbers), form.model_copy(update={"throttling": value})


def split_off_cast(form: Any) -> tuple[Any, Quantisation | None]:
    """Return the product's own form and the cast's, where the fitted form has one."""
    if not isinstance(form, QuantisingRoofline | QuantisingTileWave):
        return form, None
    fields = form.model_dump()
    cast = Quantisation(
        overhead_s=fields.pop("quantisation_s"), memory_efficiency=fields.pop("quantisation_efficiency")
    )
    plain = Roofline if isinstance(form, QuantisingRoofline) else TileWave
    return plain(**fields), cast


def _shape(points: Points, chip: Chip) -> GemmCalls:
    m, n, k = floats(points, "m", "n", "k")
    return GemmCalls(np.ones_like(m), m, n, k, chip.output_bytes)


def _cast(form: QuantisingRoofline | QuantisingTileWave, chip: Chip, points: Points) -> Array:
    m, k = floats(points, "m", "k")
    moved_bytes = m * k * (2.0 + chip.element_bytes)
    return form.quantisation_s + moved_bytes / (chip.bandwidth * form.quantisation_efficiency)


def _simple(form: Roofline, chip: Chip, points: Points) -> Array:
    seconds = roofline_seconds(form, chip, _shape(points, chip))
    return seconds + _cast(form, chip, points) if isinstance(form, QuantisingRoofline) else seconds


def _rich(form: TileWave, chip: Chip, points: Points) -> Array:
    seconds = tile_wave_seconds(form, chip, _shape(points, chip))
    return seconds + _cast(form, chip, points) if isinstance(form, QuantisingTileWave) else seconds


def _key(points: Points) -> NDArray[np.str_]:
    return joined(points["n"], points["k"])


ROOFLINE_NUMBERS = (
    Number("overhead_s", 2e-7, 1e-4, 0),
    Number("compute_efficiency", 0.05, 1.1, 0),
    Number("memory_efficiency", 0.1, 1.3, 0),
    Number("overlap_exponent", 0.7, 12.0, 0),
)
TILE_WAVE_NUMBERS = (
    Number("overhead_s", 2e-7, 1e-4, 0),
    Number("compute_efficiency", 0.1, 3.0, 0),
    Number("memory_efficiency", 0.2, 1.2, 0),
    Number("feed_bytes_per_flop", 0.003, 0.3, 0),
    Number("wave_quantisation", 0.01, 1.0, 0),
    Number("reduction_efficiency", 0.02, 10.0, 1),
    Number("throttling", 0.001, 0.2, 1),
    Number("overlap_exponent", 1.0, 12.0),
    Number("fixed_depth", 1.0, 3000.0),
    Number("feed_exponent", 0.6, 12.0),
    Number("split_overhead_s", 5e-8, 2e-5),
    Number("l2_reuse", 0.003, 3.0),
    Number("tile_spread", 0.01, 0.5),
    Number("latency_waves", 0.002, 0.5),
)
CAST_NUMBERS = (
    Number("quantisation_s", 1e-7, 1e-4, 0),
    Number("quantisation_efficiency", 0.02, 2.0, 0),
)
GENERIC_ROOFLINE = Roofline(
    overhead_s=3e-6, compute_efficiency=0.75, memory_efficiency=0.75, overlap_exponent=2.3
)
GENERIC_TILE_WAVE = TileWave(
    overhead_s=2.7e-6,
    compute_efficiency=1.0,
    memory_efficiency=0.85,
    overlap_exponent=3.7,
    fixed_depth=280.0,
    feed_bytes_per_flop=0.027,
    feed_exponent=4.0,
    wave_quantisation=0.3,
    split_overhead_s=2.2e-6,
    reduction_efficiency=0.9,
    l2_reuse=0.5,
    tile_spread=0.12,
    throttling=0.035,
    latency_waves=0.02,
)
# Residuals follow the output's number of tiles (the sum of the logs of m and n) as well as its sides, and
# where tile choice does not care which side is which, rows and columns may change places.
_SIDES = ((1, 0, 0), (0, 1, 0), (0, 0, 1))
_TILES = ((1, 1, 0), (0, 0, 1), (1, 0, 0), (0, 1, 0))
_BY_TILES = Smoother(
    (Covariance(0.5, _SIDES, (1.3, 2.0, 2.0)), Covariance(0.5, _TILES, (0.5, 3.0, 4.0, 4.0))), noise=0.02
)
# Elsewhere one pair of sides decides, whatever the third.
_BY_PAIRS = Smoother(
    (
        Covariance(0.3, _SIDES, (0.5, 0.5, 4.7)),
        Covariance(0.4, _SIDES, (0.5, 0.5, 0.5)),
        Covariance(0.3, _SIDES, (0.5, 4.7, 0.5)),
    ),
    noise=0.003,
)
SMOOTHERS = (_BY_TILES, replace(_BY_TILES, exchanges=(0, 1)), _BY_PAIRS, replace(_BY_TILES, noise=0.3))


def _coordinates(_: TileWave, points: Points) -> tuple[Array, ...]:
    return floats(points, "m", "n", "k")


SIMPLE = FittedOperation("gemm", "gemm", GENERIC_ROOFLINE, ROOFLINE_NUMBERS, _simple, _key, least=6)
RICH = FittedOperation(
    "gemm",
    "gemm",
    GENERIC_TILE_WAVE,
    TILE_WAVE_NUMBERS,
    _rich,
    _key,
    least=16,
    starts=(
        {},
        {"wave_quantisation": 0.3},
        {"wave_quantisation": 0.95, "feed_exponent": 0.7, "compute_efficiency": 2.5, "fixed_depth": 500.0},
    ),
    coordinates=_coordinates,
    smoothers=SMOOTHERS,
)
