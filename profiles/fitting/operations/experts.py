"""Mixture-of-experts layers: two grouped products with the routing kernels around them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hwmodels.kernels.chip import Chip
from hwmodels.kernels.grouped_gemm import Experts, GroupedTileWave, coordinates, expert_layer_seconds
from profiles.fitting.operations.operation import Array, FittedOperation, floats, joined
from profiles.fitting.residuals import Smoother, axis_covariance
from profiles.fitting.robust import Number
from profiles.points import Points

COLUMNS = ("tokens", "hidden", "inter", "topk", "n_experts", "tp", "ep")


def experts(points: Points, busiest_exponent: float) -> Experts:
    """Return the layers as one device sees them.

    Collectors differ in what they let one of `ep` devices compute. Most give it its share of the copies,
    and under skewed routing the share of the busiest. SGLang's lets every token choose among the device's
    own experts (under balanced routing at most half of them), so no copies go elsewhere.
    """
    tokens, hidden, inter, topk, experts_, tensor, ranks = floats(points, *COLUMNS)
    skewed = points["dist"].astype(str) != "balanced"
    local = experts_ / ranks
    busiest = np.where(skewed & (ranks > 1.0), ranks**busiest_exponent, 1.0)
    copies = tokens * topk / ranks * busiest
    sglang = np.char.find(points["source"].astype(str), "sglang") >= 0
    copies = np.where(
        sglang, tokens * np.where(skewed, topk, np.minimum(topk, np.maximum(local / 2, 0.5))), copies
    )
    return Experts(np.maximum(copies, 1.0), tokens, hidden, inter / tensor, local, skewed, ranks)


def _seconds(form: GroupedTileWave, chip: Chip, points: Points) -> Array:
    return expert_layer_seconds(form, chip, experts(points, form.skewed_busiest_exponent))


def _key(points: Points) -> NDArray[np.str_]:
    return joined(points["hidden"], points["inter"], points["n_experts"], points["topk"])


def _coordinates(form: GroupedTileWave, points: Points) -> tuple[Array, ...]:
    return coordinates(experts(points, form.skewed_busiest_exponent))


NUMBERS = (
    Number("compute_efficiency", 0.05, 2.0, 0),
    Number("memory_efficiency", 0.1, 1.3, 0),
    Number("routing_overhead_s", 1e-6, 1e-4, 0),
    Number("fixed_depth", 1.0, 3000.0, 1),
    Number("feed_bytes_per_flop", 0.002, 0.5, 1),
    Number("routing_efficiency", 0.02, 3.0, 1),
    Number("overlap_exponent", 0.8, 12.0),
    Number("feed_exponent", 0.5, 8.0),
    Number("wave_quantisation", 0.01, 1.0),
    Number("tile_spread", 0.005, 0.5),
    Number("throttling", 0.0003, 0.1),
    Number("expert_s", 1e-10, 5e-7),
    Number("skewed_active_exponent", 0.2, 1.0),
    Number("skewed_busiest_exponent", 0.01, 1.0),
)
GENERIC = GroupedTileWave(
    overhead_s=2.7e-6,
    compute_efficiency=1.0,
    memory_efficiency=0.95,
    overlap_exponent=1.5,
    fixed_depth=300.0,
    feed_bytes_per_flop=0.025,
    feed_exponent=2.5,
    wave_quantisation=0.9,
    tile_spread=0.1,
    throttling=0.005,
    routing_overhead_s=1.5e-5,
    routing_efficiency=0.5,
    expert_s=2e-8,
    skewed_active_exponent=0.4,
    skewed_busiest_exponent=0.4,
)
SMOOTHER = Smoother((axis_covariance(1.0, 2.0, 4.0, 6.0, 6.0, 2.0, 2.0),), noise=0.1)

EXPERTS = FittedOperation(
    "grouped_gemm",
    "moe",
    GENERIC,
    NUMBERS,
    _seconds,
    _key,
    least=3,
    starts=({}, {"wave_quantisation": 0.1, "overlap_exponent": 3.0}),
    coordinates=_coordinates,
    smoothers=(SMOOTHER, replace(SMOOTHER, noise=0.3)),
)

ENGINE_NUMBERS = (
    Number("memory_efficiency", 0.1, 1.0, 0),
    *(number for number in NUMBERS if number.path not in ("memory_efficiency", "expert_s")),
    Number("l2_gain", 0.01, 5.0, 1),
    Number("l2_fraction", 0.1, 2.0),
)
ENGINE_EXPERTS = replace(
    EXPERTS,
    numbers=ENGINE_NUMBERS,
    variants=({"expert_s": 0.0, "engine_kernels": True},),
    starts=(
        {"l2_gain": 1.0},
        {"compute_efficiency": 0.5, "feed_bytes_per_flop": 0.01},
        {"wave_quantisation": 0.1, "overlap_exponent": 3.0, "l2_gain": 1.0},
    ),
    coordinates=None,
)
"""Layers of one engine's own kernels. Steps take the form without start-up, and no residuals."""
