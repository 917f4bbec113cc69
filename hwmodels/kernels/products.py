"""Times of matrix products, dense, batched and grouped by expert, as methods of `KernelModel`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from core.errors import UnknownNameError
from hwmodels.kernels import gemm, grouped_gemm
from hwmodels.kernels.base import Array, Kernels, broadcast
from hwmodels.kernels.chip import peak_dtype

Layout = Literal["forward", "dgrad", "wgrad"]

# Beyond this ratio of peaks a dtype runs on other units than its substitute (fp32 beside bf16's matrix
# units): tile constants do not carry over, shares of peak and bandwidth do.
OTHER_UNITS = 5.0
# fp32 accumulation into a weight gradient reads and writes four bytes per element (Megatron-LM's fused
# gradient accumulation).
WGRAD_OUTPUT_BYTES = 8.0


class Products(Kernels):
    """Matrix products of one device."""

    def gemm(
        self,
        m: ArrayLike,
        n: ArrayLike,
        k: ArrayLike,
        dtype: str = "bf16",
        layout: Layout = "forward",
        quantises: bool = False,
    ) -> Array:
        """Return the time of an m x k by k x n product.

        Args:
            m: rows of the output.
            n: columns of the output.
            k: depth.
            dtype: of the operands.
            layout: forward, dgrad or wgrad; m, n, k are the product's own in each.
            quantises: whether the call also casts its 16-bit activations to the dtype, as serving libraries
                do; else the caller prices the casts.

        Raises:
            InputError: a dtype that the device lacks.
        """
        seconds = self._gemm(1.0, m, n, k, dtype, layout)
        quantisation = self._entry("gemm", dtype)[1].quantisation
        if quantisation and quantises:
            figures = self._chip(dtype)
            moved_bytes = np.multiply(m, k, dtype=np.float64) * (2.0 + figures.element_bytes)
            seconds = seconds + quantisation.overhead_s
            seconds = seconds + moved_bytes / (figures.bandwidth * quantisation.memory_efficiency)
        if quantises or not quantisation:
            # Measured points of a dtype with a cast include the cast.
            seconds = seconds * self._correction("gemm", dtype, m, n, k)
        flops = 2.0 * np.asarray(m, dtype=np.float64) * np.asarray(n, dtype=np.float64) * np.asarray(k)
        return np.maximum(seconds, flops / self.device.peak(peak_dtype(dtype)))

    def batched_gemm(
        self,
        batch: ArrayLike,
        m: ArrayLike,
        n: ArrayLike,
        k: ArrayLike,
        dtype: str = "bf16",
        layout: Layout | Sequence[Layout] = "forward",
        window: ArrayLike = 1.0,
    ) -> Array:
        """Return the time of `batch` independent m x k by k x n products in one kernel.

        Casts are not included, and no measured points correct the form. `layout` may hold one layout per row
        of the sizes' first axis. A convolution reads an input once for all places of its `window`.
        """
        seconds = self._gemm(batch, m, n, k, dtype, layout, window)
        m, n, k = (np.asarray(size, dtype=np.float64) for size in (m, n, k))
        return np.maximum(seconds, 2.0 * np.asarray(batch) * m * n * k / self.device.peak(peak_dtype(dtype)))

    def expert_share(self, layout: Layout) -> float:
        """Return the time of products of experts over that of equally many dense products."""
        self._layout(layout)
        return getattr(self.calibration.expert_products, layout)

    @property
    def measures_experts(self) -> bool:
        """Whether `expert_share` is measured on this device."""
        return "forward" in self.calibration.expert_products.model_fields_set

    def cold_read_seconds(self, n: ArrayLike, k: ArrayLike, dtype: str) -> Array:
        """Return the time to read n x k weights from memory, at the share of the bandwidth of large products.

        A model's weights do not stay in the last-level cache from one step to the next. Points of smaller
        weights may be measured with them there (L40S: copies of 34 MB beside a cache of 101 MB).
        """
        figures = self._chip(dtype)
        rich = self._entry("gemm", dtype)[1].rich
        share = min(rich.memory_efficiency, 1.0) if rich is not None else 1.0
        read = np.multiply(n, k, dtype=np.float64) * figures.element_bytes
        return read / (share * figures.bandwidth)

    def settled_seconds(self, flops: ArrayLike, dtype: str) -> Array:
        """Return the minimum time of products under steady load: at the rate set by the power limit.

        A faster product at full clocks draws more than the limit, and the clocks fall until it takes this
        long; a slower product keeps its clocks. Zero for kernels that are not `sustained`, and where the rate
        is not measured.
        """
        rate = self.device.settled(dtype) if self.busy_before_s else math.inf
        return np.asarray(flops, dtype=np.float64) / rate

    def _gemm(
        self,
        batch: ArrayLike,
        m: ArrayLike,
        n: ArrayLike,
        k: ArrayLike,
        dtype: str,
        layout: Layout | Sequence[Layout],
        window: ArrayLike = 1.0,
    ) -> Array:
        figures = self._chip(dtype)
        output_bytes, slower = self._layouts(
            layout, figures.output_bytes, max(map(np.ndim, (batch, m, n, k)))
        )
        shape, outer = gemm.flat_shape(batch, m, n, k, output_bytes)
        if np.any(np.asarray(window) != 1):
            shape = gemm.read_once(shape, np.broadcast_to(window, outer).ravel(), figures.element_bytes)
        entry, fitted = self._entry("gemm", dtype)
        share = self._peak_of(entry.rpartition("/")[2], figures.peak) / figures.peak
        if fitted.rich is not None and 1.0 / OTHER_UNITS < share < OTHER_UNITS:
            # The L2 feed is in bytes per second, independent of the dtype's peak.
            feed = fitted.rich.feed_bytes_per_flop * share
            rich = fitted.rich.model_copy(update={"feed_bytes_per_flop": feed})
            seconds = gemm.tile_wave_seconds(rich, figures, shape)
        else:
            seconds = gemm.roofline_seconds(fitted.simple, figures, shape)
        return np.asarray(seconds.reshape(outer) * np.asarray(slower, dtype=np.float64))

    def _layouts(
        self, layout: Layout | Sequence[Layout], output_bytes: float, axes: int
    ) -> tuple[ArrayLike, ArrayLike]:
        """Return bytes of an output element, and time over the forward layout's; one per first index."""
        if isinstance(layout, str):
            return (WGRAD_OUTPUT_BYTES if layout == "wgrad" else output_bytes), self._layout(layout)
        both = np.array([self._layouts(each, output_bytes, axes) for each in layout]).T
        element_bytes, slower = both.reshape(2, -1, *(1,) * (axes - 1))
        return element_bytes, slower

    def _layout(self, layout: Layout) -> float:
        if layout == "forward":
            return 1.0
        if layout not in ("dgrad", "wgrad"):
            raise UnknownNameError("GEMM layout", layout, ("forward", "dgrad", "wgrad"))
        return getattr(self.calibration.layouts, layout)

    def grouped_gemm(
        self,
        tokens: ArrayLike,
        n: ArrayLike,
        k: ArrayLike,
        experts: ArrayLike,
        dtype: str = "bf16",
        layout: Layout = "forward",
        imbalance: ArrayLike = 1.0,
    ) -> Array:
        """Return the time of one grouped GEMM over the experts of a device.

        Args:
            tokens: routed token copies on this device, over all its experts.
            n: columns of an expert's weight.
            k: rows of an expert's weight.
            experts: experts on this device.
            dtype: of the operands.
            layout: forward, dgrad or wgrad.
            imbalance: this device's tokens over `tokens`, above 1 for a device with more than its share.
        """
        figures = self._chip(dtype)
        output_bytes = WGRAD_OUTPUT_BYTES if layout == "wgrad" else figures.output_bytes
        tokens, n, k, experts, imbalance = broadcast(tokens, n, k, experts, imbalance)
        copies = tokens * imbalance
        groups = grouped_gemm.Groups(copies, n, k, np.minimum(experts, copies), output_bytes)
        seconds = grouped_gemm.grouped_gemm_seconds(
            self._entry("grouped_gemm", dtype)[1].form, figures, groups
        )
        return seconds * self._layout(layout)

    def expert_layer(
        self,
        tokens: ArrayLike,
        hidden: ArrayLike,
        feed_forward: ArrayLike,
        top_k: ArrayLike,
        experts: ArrayLike,
        tensor: ArrayLike = 1,
        expert_parallel: ArrayLike = 1,
        dtype: str = "bf16",
        skewed: ArrayLike = False,
        popular: bool = False,
    ) -> Array:
        """Return the time of a gated mixture-of-experts layer on its busiest device, as engines run it.

        Tokens choose experts at random, so the weights of E (1 - (1 - k/E)^tokens) experts are read, and of
        fewer where popularities differ; the busiest device counts. Kernels are those of
        `GroupedTileWave.served`; token movement is included. `expert_layer_of` gives the kernels of
        benchmark tables.

        Args:
            tokens: token positions over all devices of the expert group.
            hidden: model width.
            feed_forward: width of one expert.
            top_k: experts per token.
            experts: experts of the layer.
            tensor: devices over which the width of an expert is sharded.
            expert_parallel: devices over which the experts are spread.
            dtype: of the products.
            skewed: preference for some experts, from 0 (none) to 1 (a power law with exponent 1.2).
            popular: whether experts differ in popularity as on servers (`grouped_gemm.POPULARITY`).
        """
        arrays = broadcast(tokens, hidden, feed_forward, top_k, experts, tensor, expert_parallel, skewed)
        tokens, hidden, feed_forward, top_k, experts, tensor, ranks, prefers = arrays
        form = self._entry("grouped_gemm", dtype)[1].form.served()
        share = 1.0 / ranks
        copies, spread = tokens * top_k * share, 1.0 - share
        copies = grouped_gemm.busiest(copies, copies * spread, ranks) * ranks ** (
            form.skewed_busiest_exponent * prefers
        )
        local = experts * share
        hit = grouped_gemm.popular_hits if popular else grouped_gemm.uniform_hits
        hits = hit(tokens, top_k, experts) * share
        hits = grouped_gemm.busiest(hits, hits * (1.0 - hits / local) * spread, ranks)
        layer = grouped_gemm.Experts(
            np.minimum(copies, tokens * top_k),
            tokens,
            hidden,
            feed_forward / tensor,
            local,
            prefers,
            ranks,
            np.clip(hits, 0.0, local),
        )
        return grouped_gemm.expert_layer_seconds(form, self._chip(dtype), layer)

    def expert_start(self, dtype: str) -> float:
        """Seconds of an expert layer's kernels beside its products without tokens, as engines' tables timed
        them (choice, sort, gather, activation, scatter); 0 where none did."""
        form = self._entry("grouped_gemm", dtype)[1].form.served()
        return form.routing_overhead_s

    def times_experts(self, dtype: str) -> bool:
        """Whether expert layers of this format were timed here, in this library or the default one."""
        entry = self._own_entry("grouped_gemm", dtype)
        return entry is not None and entry.status != "estimated"

    def expert_layer_of(self, layer: Callable[[float], grouped_gemm.Experts], dtype: str = "bf16") -> Array:
        """Return the time of one device's mixture-of-experts layers in a benchmark's loop.

        Args:
            layer: function from the exponent of the busiest device's share under skewed routing to the
                layers.
            dtype: of the products.
        """
        form = self._entry("grouped_gemm", dtype)[1].form
        seen = layer(form.skewed_busiest_exponent)
        seconds = grouped_gemm.expert_layer_seconds(form, self._chip(dtype), seen)
        return seconds * self._correction("grouped_gemm", dtype, *grouped_gemm.coordinates(seen))
