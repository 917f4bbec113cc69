"""Time of a grouped GEMM, and of a mixture-of-experts layer with two of them.

A grouped GEMM multiplies the tokens of every expert by the expert's weights in one kernel: the tile-and-wave
form of `gemm` with one group per expert, whose rows are padded to whole tiles. Weights of experts without
tokens are not read.

Routing has three kinds. *Even* routing of benchmarks hits as many experts as possible. Random routing of
models hits `uniform_hits` experts, and the busiest of several devices has more than its share by chance.
*Skewed* routing also prefers some experts.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from core.loading import Strict
from hwmodels.kernels.chip import Chip
from hwmodels.kernels.gemm import GemmCalls, TileWave, tile_wave_seconds
from hwmodels.kernels.l2 import faster_in_l2

Array = NDArray[np.floating]

TILES = ((16, 128), (32, 128), (64, 128), (128, 128), (128, 256), (256, 128))


UNTUNED_FEW, UNTUNED_MANY = ((16, 32),), ((64, 64),)
"""Tiles of SGLang's and vLLM's Triton experts without a tuned file (fused_moe, ``get_default_config``)."""
SERVED_READ_SHARE = 0.89
"""Share of the bandwidth at which serving engines read weights: 0.89 fits decode steps of vLLM, SGLang and
TensorRT-LLM on H100, H200 and B200 in bf16, fp8 and fp4 (factors of 0.70 to 1.47 by group, median 0.97)."""
SERVED_OVERLAP = 4.0
"""Few rows: the kernel streams weights."""
SERVED_FIXED_DEPTH = 1000.0
"""Highest prologue of a tile, in columns of depth: 550 to 975 fit bf16; 2,200 to 3,000 in tables of narrower
formats belong to the tables' kernels, and measured times to first token do not show them."""
SERVED_TILE_SPREAD = 0.03
"""Assumed: engines benchmark tiles at start-up and use the fastest. Of 93 fits to engines' own kernels in
``calibrations`` 37 lie below, half beyond 0.15."""
SERVED_ROUTING = 0.43
"""Least share of the bandwidth at which routing kernels move tokens: the one measured in fp8 on B200."""

# Mean of the largest of 2^i standard normal draws (Harter 1961): excess load of the busiest device.
LARGEST_OF = (0.0, 0.564, 1.029, 1.424, 1.766, 2.070, 2.343, 2.594, 2.825, 3.039, 3.240)


class GroupedTileWave(Strict):
    """Constants of the grouped form (see `gemm.TileWave`), and of the layer around it."""

    overhead_s: float = Field(ge=0)
    compute_efficiency: float = Field(gt=0)
    memory_efficiency: float = Field(gt=0)
    overlap_exponent: float = Field(gt=0)
    fixed_depth: float = Field(ge=0)
    feed_bytes_per_flop: float = Field(gt=0)
    feed_exponent: float = Field(gt=0)
    wave_quantisation: float = Field(ge=0, le=1)
    tile_spread: float = Field(gt=0)
    throttling: float = Field(ge=0)
    routing_overhead_s: float = Field(ge=0)
    """Time of the layer's other kernels (choice, sort, gather, activation, scatter) without tokens."""
    routing_efficiency: float = Field(gt=0)
    """Share of the memory bandwidth at which these kernels move tokens."""
    expert_s: float = Field(default=0.0, ge=0)
    """Time that every expert on the device adds to these kernels."""
    skewed_active_exponent: float = Field(default=0.4, gt=0, le=1)
    """Skewed routing: 1 - exp(-(copies per expert)^this) of the experts get tokens."""
    skewed_busiest_exponent: float = Field(default=0.4, ge=0, le=1)
    """Skewed routing: the busiest of `ranks` devices gets ranks^this times the mean."""
    l2_gain: float = Field(default=0.0, ge=0)
    """Further speed of memory while what a layer touches lies in L2, as in a benchmark's loop."""
    l2_fraction: float = Field(default=0.5, gt=0)
    untuned: bool = False
    """Whether tiles are Triton's defaults where no file of tuned ones exists: few rows with at most as many
    tokens as experts, more above."""
    served_memory_efficiency: float = Field(default=SERVED_READ_SHARE, gt=0)
    """Share of the bandwidth at which serving engines read weights."""
    engine_kernels: bool = False
    """Whether the table timed the kernels that engines run: `served_memory_efficiency` is not for them."""
    hidden_start: bool = False
    """Whether steps of servers hide the start, since kernels of a graph begin before those ahead end."""

    def served(self) -> "GroupedTileWave":
        """The layer as serving engines run it.

        Tables of the engine's own kernels, timed in CUDA graphs, stay whole with their start. Of others the
        start is part of the engine's time per layer: engines choose faster kernels for few tokens, launch
        them from a graph, and fuse routing with neighbouring kernels. Matrix units and feed stay as measured.
        """
        starts = {"overhead_s": 0.0, "routing_overhead_s": 0.0, "expert_s": 0.0}
        if self.engine_kernels:
            return self.model_copy(update={**(starts if self.hidden_start else {}), "l2_gain": 0.0})
        return self.model_copy(
            update={
                **starts,
                "memory_efficiency": self.served_memory_efficiency,
                "overlap_exponent": SERVED_OVERLAP,
                "fixed_depth": min(self.fixed_depth, SERVED_FIXED_DEPTH),
                "tile_spread": min(self.tile_spread, SERVED_TILE_SPREAD),
                "routing_efficiency": max(self.routing_efficiency, SERVED_ROUTING),
                "l2_gain": 0.0,
            }
        )

    @property
    def product(self) -> TileWave:
        """The constants of one grouped GEMM."""
        return TileWave(
            overhead_s=self.overhead_s,
            compute_efficiency=self.compute_efficiency,
            memory_efficiency=self.memory_efficiency,
            overlap_exponent=self.overlap_exponent,
            fixed_depth=self.fixed_depth,
            feed_bytes_per_flop=self.feed_bytes_per_flop,
            feed_exponent=self.feed_exponent,
            wave_quantisation=self.wave_quantisation,
            split_overhead_s=0.0,
            reduction_efficiency=1.0,
            l2_reuse=0.0,
            tile_spread=self.tile_spread,
            throttling=self.throttling,
            latency_waves=0.0,
        )


class Groups(NamedTuple):
    """Equal-shape arrays: token copies over the device's experts, weight shape n x k, experts with tokens."""

    copies: Array
    n: Array
    k: Array
    active: Array
    output_bytes: float
    speed: float | Array = 1.0
    """Of memory, over that outside of L2."""
    few: NDArray[np.bool_] | None = None
    """Whether the tokens are at most as many as the experts."""


class Experts(NamedTuple):
    """Equal-shape arrays of mixture-of-experts layers: the share of one of `ranks` devices.

    `hits` are the experts of the device with tokens under unskewed routing; None: as many as possible.
    `skewed` ranges from 0 (no expert is preferred) to 1 (a power law with exponent 1.2).
    """

    copies: Array
    tokens: Array
    hidden: Array
    feed_forward: Array
    experts: Array
    skewed: Array | NDArray[np.bool_]
    ranks: Array
    hits: Array | None = None


def uniform_hits(tokens: Array, top_k: Array, experts: Array) -> Array:
    """Return the expected number of experts with tokens, when every token chooses `top_k` at random."""
    return experts * -np.expm1(tokens * np.log1p(-np.minimum(top_k / experts, 1.0 - 1e-12)))


POPULARITY = 1.0
"""Shape of the gamma distribution that experts' popularities follow on a server; infinite: all are equal.
Derived from decode steps under vLLM, SGLang and TensorRT-LLM with the start of experts' kernels, by models
left out: docs/accuracy/servers-fits.md."""


def popular_hits(tokens: Array, top_k: Array, experts: Array) -> Array:
    """Return the expected number of experts with tokens where experts differ in popularity by `POPULARITY`.

    Copies of an expert are Poisson with a gamma-distributed mean; one token hits `top_k` experts.
    """
    copies = tokens * top_k / experts
    hits = experts * (1.0 - (1.0 + copies / POPULARITY) ** -POPULARITY)
    return np.maximum(hits, np.minimum(top_k * np.minimum(tokens, 1.0), experts))


def busiest(mean: Array, variance: Array, ranks: Array) -> Array:
    """Return the expected largest of `ranks` random shares (normal approximation)."""
    off = np.interp(np.log2(ranks), np.arange(len(LARGEST_OF)), LARGEST_OF)
    return mean + off * np.sqrt(variance)


def coordinates(layer: Experts) -> tuple[Array, ...]:
    """Return the coordinates of a layer on a grid of residuals.

    Copies per expert, experts, width, hidden, skew (1 or 2), and copies per token over all devices.
    """
    each = np.maximum(layer.copies / layer.experts, 1e-3)
    spread = layer.copies * layer.ranks / layer.tokens
    return each, layer.experts, layer.feed_forward, layer.hidden, 1.0 + layer.skewed, spread


def grouped_gemm_seconds(form: GroupedTileWave, chip: Chip, groups: Groups) -> Array:
    """Return kernel times of one grouped GEMM in seconds."""
    active = np.maximum(groups.active, 1.0)
    flat = (active, groups.copies / active, groups.n, groups.k)
    speed = np.ravel(groups.speed) if np.ndim(groups.speed) else groups.speed
    shape = GemmCalls(*(np.ravel(a) for a in flat), output_bytes=groups.output_bytes, speed=speed)
    if form.untuned and groups.few is not None:
        few, many = (
            tile_wave_seconds(form.product, chip, shape, tiles, (1,)) for tiles in (UNTUNED_FEW, UNTUNED_MANY)
        )
        seconds = np.where(np.ravel(groups.few), few, many)
    else:
        seconds = tile_wave_seconds(form.product, chip, shape, TILES, (1,))
    return seconds.reshape(np.shape(groups.copies))


def expert_layer_seconds(form: GroupedTileWave, chip: Chip, layer: Experts) -> Array:
    """Return seconds of a gated mixture-of-experts layer on one device, routing kernels included.

    `layer.copies` are the routed copies that this device computes; `layer.tokens` the tokens it holds.
    """
    copies = np.maximum(layer.copies, 1.0)
    preferred = layer.experts * -np.expm1(-((copies / layer.experts) ** form.skewed_active_exponent))
    uniform = layer.experts if layer.hits is None else layer.hits
    uniform, preferred = (np.clip(hits, 1.0, copies) for hits in (uniform, np.minimum(preferred, uniform)))
    active = uniform * (preferred / uniform) ** layer.skewed
    width, hidden = layer.feed_forward, layer.hidden
    speed: float | Array = 1.0
    if form.l2_gain:
        touched = 3.0 * active * width * hidden * chip.element_bytes + 2.0 * copies * (hidden + width)
        speed = faster_in_l2(touched, form.l2_gain, form.l2_fraction * chip.l2_bytes)
    output, few = chip.output_bytes, layer.tokens <= layer.experts
    up = Groups(copies, 2.0 * width, hidden, active, output, speed, few)
    down = Groups(copies, hidden, width, active, output, speed, few)
    products = grouped_gemm_seconds(form, chip, up) + grouped_gemm_seconds(form, chip, down)
    # Gather and scatter of copies, the activation between the products, the layer's input and output.
    moved_bytes = copies * (4.0 * hidden + 6.0 * width) + 4.0 * layer.tokens * hidden
    routing = form.routing_overhead_s + moved_bytes / (chip.bandwidth * form.routing_efficiency)
    return products + routing + form.expert_s * layer.experts
