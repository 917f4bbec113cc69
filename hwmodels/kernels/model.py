"""`KernelModel`: what every kernel of one device costs, in seconds, as array functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodels.errors import InputError, UnknownNameError
from hwmodels.kernels import attention, attention_decode, gemm, grouped_gemm, memory_bound
from hwmodels.kernels.calibration import Calibration, Entry, calibrations
from hwmodels.kernels.chip import Chip, Specifications, chip, peak_dtype
from hwmodels.kernels.residual import ResidualGrid, load_grids

Array = NDArray[np.floating]
Layout = Literal["forward", "dgrad", "wgrad"]
EntryT = TypeVar("EntryT", bound=Entry)

# Where a dtype has no calibration of its own, the constants of the next of these are used.
STANDS_FOR = {
    "fp16": ("bf16",),
    "bf16": ("fp16",),
    "bf16_kvfp8": ("bf16",),
    "tf32": ("bf16",),
    "fp32": ("bf16",),
    "int8": ("fp8", "bf16"),
    "fp8": ("bf16",),
    "fp8_block": ("fp8", "bf16"),
    "mxfp8": ("fp8", "bf16"),
    "nvfp4": ("mxfp4", "fp8", "bf16"),
    "mxfp4": ("nvfp4", "fp8", "bf16"),
}
# A dtype with a peak so far from that of the dtype that stands for it runs on other units (fp32 beside
# the matrix units of bf16): tile constants do not carry over, shares of peak and bandwidth do.
OTHER_UNITS = 3.0
MEMORY_BOUND_KINDS = (*memory_bound.KINDS, *memory_bound.VARIANTS)
OPERATIONS = ("gemm", "grouped_gemm", "attention", "attention_backward", "attention_decode")
# fp32 accumulation into a weight gradient reads and writes four bytes an element (Megatron-LM's fused
# gradient accumulation).
WGRAD_OUTPUT_BYTES = 8.0
# Scores are computed again in the backward pass: five products for two (Dao 2023, FlashAttention-2).
BACKWARD_FLOPS = 2.5


class KernelModel:
    """Kernel times of one device. All methods take arrays that broadcast, and return seconds.

    Args:
        device: data-sheet figures (peak per dtype, bandwidth, multiprocessors, L2).
        calibration: fitted constants; the device's own when left out.
        busy_before_s: how long the device has been busy when a kernel starts; see `sustained`.
        library: whose kernels run, where the calibration knows several; see `using`.
        corrects: whether measured points beside the calibration correct the forms.
    """

    def __init__(
        self,
        device: Specifications,
        calibration: Calibration | None = None,
        busy_before_s: float = 0.0,
        library: str = "",
        corrects: bool = True,
    ) -> None:
        self.device, self.busy_before_s = device, busy_before_s
        self.library, self.corrects = library, corrects
        self.calibration = calibration or calibrations.get(
            device.calibration, where=f"device {device.name}: calibration"
        )

    def __repr__(self) -> str:
        return f"KernelModel({self.device.name}, {self.calibration.name}: {self.calibration.status})"

    def sustained(self) -> KernelModel:
        """The same device in the middle of steady work, where its power limit has settled the clocks.

        A benchmark's short kernels run at clocks that a training step of seconds never sees. The loss is the
        one that the calibration measured on kernels of 20 ms and more.
        """
        return KernelModel(self.device, self.calibration, gemm.THROTTLE_END_S, self.library, self.corrects)

    def using(self, library: str) -> KernelModel:
        """The same device with another library's kernels ("vllm", "flash-attention-2"), where it has its own.

        What the calibration does not know of that library stays as it is, so an unknown name changes nothing.
        """
        return KernelModel(self.device, self.calibration, self.busy_before_s, library, self.corrects)

    def uncorrected(self) -> KernelModel:
        """The forms alone, without the correction by measured points."""
        return KernelModel(self.device, self.calibration, self.busy_before_s, self.library, corrects=False)

    @property
    def launch_seconds(self) -> float:
        """Host time to launch one kernel in eager mode."""
        return self.calibration.launch_s

    def gemm(
        self,
        m: ArrayLike,
        n: ArrayLike,
        k: ArrayLike,
        dtype: str = "bf16",
        layout: Layout = "forward",
        form: Literal["rich", "simple"] = "rich",
        quantises: bool = False,
    ) -> Array:
        """Return the time of an m x k by k x n product.

        Args:
            m: rows of the output.
            n: columns of the output.
            k: depth.
            dtype: of the operands.
            layout: forward, dgrad or wgrad; m, n, k are the product's own in each.
            form: the tile-and-wave form, or the simple one (faster; never corrected by points).
            quantises: whether the call also casts its 16-bit activations to the dtype, as serving libraries
                do; else operands are taken as they are, and casts are the caller's.

        Raises:
            InputError: a dtype that the device lacks.
        """
        seconds = self._gemm(1.0, m, n, k, dtype, layout, form)
        quantisation = self._entry("gemm", dtype)[1].quantisation
        if quantisation and quantises:
            figures = self._chip(dtype)
            moved = np.multiply(m, k, dtype=np.float64) * (2.0 + figures.element_bytes)
            seconds = seconds + quantisation.overhead_s
            seconds = seconds + moved / (figures.bandwidth * quantisation.memory_efficiency)
        if form == "rich" and (quantises or not quantisation):
            # Points of a dtype with a cast are measured with it.
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
        layout: Layout = "forward",
    ) -> Array:
        """Return the time of `batch` independent m x k by k x n products that run side by side.

        Operands are taken as they are, and no measured points correct the form.
        """
        seconds = self._gemm(batch, m, n, k, dtype, layout, "rich")
        m, n, k = (np.asarray(size, dtype=np.float64) for size in (m, n, k))
        return np.maximum(seconds, 2.0 * np.asarray(batch) * m * n * k / self.device.peak(peak_dtype(dtype)))

    def _gemm(
        self,
        batch: ArrayLike,
        m: ArrayLike,
        n: ArrayLike,
        k: ArrayLike,
        dtype: str,
        layout: Layout,
        form: Literal["rich", "simple"],
    ) -> Array:
        figures = self._chip(dtype)
        output_bytes = WGRAD_OUTPUT_BYTES if layout == "wgrad" else figures.output_bytes
        shape, outer = gemm.flat_shape(batch, m, n, k, output_bytes)
        found, fitted = self._entry("gemm", dtype)
        share = self._peak_of(found.rpartition("/")[2], figures.peak) / figures.peak
        if form == "rich" and fitted.rich is not None and 1.0 / OTHER_UNITS < share < OTHER_UNITS:
            # L2 feeds bytes a second, whatever the matrix units do with them.
            feed = fitted.rich.feed_bytes_per_flop * share
            rich = fitted.rich.model_copy(update={"feed_bytes_per_flop": feed})
            seconds = gemm.tile_wave_seconds(rich, figures, shape)
        else:
            seconds = gemm.roofline_seconds(fitted.simple, figures, shape)
        return (seconds * self._layout(layout)).reshape(outer)

    def _peak_of(self, dtype: str, otherwise: float) -> float:
        """Return the peak of a dtype that stands for another, or `otherwise` where the device lacks it."""
        for name in (peak_dtype(dtype), *STANDS_FOR.get(dtype, ())):
            try:
                return self.device.peak(name)
            except InputError:
                continue
        return otherwise

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
            imbalance: this device's tokens over `tokens`, for a device that got more than its share.
        """
        figures = self._chip(dtype)
        output_bytes = WGRAD_OUTPUT_BYTES if layout == "wgrad" else figures.output_bytes
        tokens, n, k, experts, imbalance = _broadcast(tokens, n, k, experts, imbalance)
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
    ) -> Array:
        """Return the time of a gated mixture-of-experts layer on its busiest device, routing included.

        Args:
            tokens: token positions over all devices of the expert group.
            hidden: model width.
            feed_forward: width of one expert.
            top_k: experts a token.
            experts: experts of the layer.
            tensor: devices over which each expert's width is cut.
            expert_parallel: devices over which the experts are spread.
            dtype: of the products.
            skewed: whether tokens prefer some experts (a power law with exponent 1.2) or none.
        """
        arrays = _broadcast(tokens, hidden, feed_forward, top_k, experts, tensor, expert_parallel, skewed)
        tokens, hidden, feed_forward, top_k, experts, tensor, ranks, prefers = arrays

        def layer(busiest_exponent: float) -> grouped_gemm.Experts:
            busiest = np.where(prefers > 0.0, ranks**busiest_exponent, 1.0)
            copies = tokens * top_k / ranks * busiest
            width, local = feed_forward / tensor, experts / ranks
            return grouped_gemm.Experts(copies, tokens, hidden, width, local, prefers > 0.0, ranks)

        return self.expert_layer_of(layer, dtype)

    def expert_layer_of(self, layer: Callable[[float], grouped_gemm.Experts], dtype: str = "bf16") -> Array:
        """Return the time of mixture-of-experts layers as one device sees them.

        Args:
            layer: gives the layers, from the exponent by which the busiest device's share grows with the
                number of devices under skewed routing.
            dtype: of the products.
        """
        form = self._entry("grouped_gemm", dtype)[1].form
        seen = layer(form.skewed_busiest_exponent)
        seconds = grouped_gemm.expert_layer_seconds(form, self._chip(dtype), seen)
        return seconds * self._correction("grouped_gemm", dtype, *grouped_gemm.coordinates(seen))

    def attention(
        self,
        batch: ArrayLike,
        seq_q: ArrayLike,
        seq_kv: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        causal: bool = True,
        dtype: str = "bf16",
        direction: Literal["forward", "backward"] = "forward",
        v_head_dim: ArrayLike | None = None,
        appends: bool = False,
        kv_dtype: str | None = None,
    ) -> Array:
        """Return the time of fused attention.

        Args:
            batch: sequences.
            seq_q: query positions a sequence.
            seq_kv: key positions a sequence; with `causal` the last query sees all of them.
            heads: query heads.
            kv_heads: key-value heads.
            head_dim: of queries and keys.
            causal: whether a query sees only keys up to its own position.
            dtype: of the operands.
            direction: forward, or backward (which recomputes the scores: 2.5 times the FLOPs).
            v_head_dim: of values, where it differs (multi-head latent attention).
            appends: whether new keys and values are also written into a cache, as in serving.
            kv_dtype: of that cache, where it differs.
        """
        mean_dim = np.asarray(head_dim, dtype=np.float64)
        if v_head_dim is not None:
            mean_dim = 0.5 * (mean_dim + np.asarray(v_head_dim, dtype=np.float64))
        call = attention.Attention(*_broadcast(batch, seq_q, seq_kv, heads, kv_heads, mean_dim))
        figures = self._chip(dtype)
        if direction == "backward":
            fitted = self._entry("attention_backward", dtype)[1]
            return attention.flash_attention_seconds(
                fitted.form, figures, call, causal, False, BACKWARD_FLOPS
            )
        if direction != "forward":
            raise UnknownNameError("attention direction", direction, ("forward", "backward"))
        key = f"{dtype}_kv{kv_dtype}" if kv_dtype else dtype
        fitted = self._entry("attention", key)[1]
        seconds = attention.flash_attention_seconds(fitted.form, figures, call, causal, appends)
        if not (appends and causal):
            # Points are measured with the cache's append, which training does not have.
            return seconds
        return seconds * self._correction(
            "attention", key, call.batch, call.seq_q, call.kv_heads, call.heads / call.kv_heads, mean_dim
        )

    def attention_decode(
        self,
        batch: ArrayLike,
        seq_kv: ArrayLike,
        heads: ArrayLike,
        kv_heads: ArrayLike,
        head_dim: ArrayLike,
        dtype: str = "bf16",
        kv_dtype: str | None = None,
        cache_in_l2: bool = False,
    ) -> Array:
        """Return the time of attention for one new token a sequence over `seq_kv` cached positions.

        Args:
            batch: sequences.
            seq_kv: cached positions of each.
            heads: query heads.
            kv_heads: key-value heads.
            head_dim: of all heads.
            dtype: of the arithmetic.
            kv_dtype: of the cache, where it differs.
            cache_in_l2: whether a cache that fits lies in L2, as in a benchmark loop.
        """
        batch, seq_kv, heads, kv_heads, head_dim = _broadcast(batch, seq_kv, heads, kv_heads, head_dim)
        figures = self._chip(dtype)
        kv_bytes = chip(self.device, kv_dtype).element_bytes if kv_dtype else figures.element_bytes
        key = f"{dtype}_kv{kv_dtype}" if kv_dtype else dtype
        call = attention_decode.Decode(batch, seq_kv, heads, kv_heads, head_dim, kv_bytes)
        form = self._entry("attention_decode", key)[1].form
        seconds = attention_decode.split_kv_seconds(form, figures, call, cache_in_l2)
        return seconds * self._correction(
            "attention_decode", key, batch, seq_kv, kv_heads, heads / kv_heads, head_dim
        )

    def memory_bound(self, bytes_moved: ArrayLike, kind: str = "elementwise") -> Array:
        """Return the time of a kernel that reads and writes `bytes_moved` bytes in all.

        Args:
            bytes_moved: bytes read and written.
            kind: of `memory_bound.KINDS` or `VARIANTS`.

        Raises:
            UnknownNameError: a kind that is none of them.
        """
        device = self.device
        figures = Chip(0.0, device.memory_bandwidth, device.multiprocessors, device.l2_bytes, 2.0, 2.0)
        moved = np.asarray(bytes_moved, dtype=np.float64)
        return memory_bound.memory_bound_seconds(self._memory_bound(kind).form, figures, moved)

    def _memory_bound(self, kind: str) -> Any:
        if kind not in MEMORY_BOUND_KINDS:
            raise UnknownNameError("memory-bound kernel", kind, MEMORY_BOUND_KINDS)
        own = self.calibration.libraries.get(self.library)
        tables = [own.memory_bound] if own else []
        for table in (*tables, self.calibration.memory_bound):
            for name in (kind, memory_bound.VARIANTS.get(kind)):
                if name in table:
                    return table[name]
        return self.calibration.memory_bound["elementwise"]

    def host_copy(self, bytes_moved: ArrayLike) -> Array:
        """Return the time of a copy between device and host memory, in either direction."""
        link = self.calibration.host_copy
        return link.overhead_s + np.asarray(bytes_moved, dtype=np.float64) / link.bandwidth

    def error(self, op: str, dtype: str = "bf16") -> tuple[float, float]:
        """Return (median, 90th percentile) of the relative error on unseen shapes.

        Args:
            op: gemm, grouped_gemm, attention, attention_backward, attention_decode or a memory-bound kind.
            dtype: of the operands; ignored by memory-bound kinds.

        Raises:
            UnknownNameError: no such operation.
        """
        if op in MEMORY_BOUND_KINDS:
            found = self._memory_bound(op)
        elif op in OPERATIONS:
            found = self._entry(op, dtype)[1]
        else:
            raise UnknownNameError("operation", op, (*OPERATIONS, *MEMORY_BOUND_KINDS))
        band = found.band if self.corrects else found.error
        return band.median, band.p90

    def _chip(self, dtype: str) -> Chip:
        return chip(self.device, dtype)._replace(busy_before_s=self.busy_before_s)

    def _entry(self, operation: str, dtype: str) -> tuple[str, Any]:
        """Return an operation's constants and the name of their grid: this library's, else the default's."""
        own = self.calibration.libraries.get(self.library)
        for prefix, source in ((f"{self.library}/", own), ("", self.calibration)):
            table = getattr(source, operation, {})
            for name in (dtype, *STANDS_FOR.get(dtype, ())):
                if name in table:
                    return f"{prefix}{operation}/{name}", table[name]
        raise InputError(
            f"the calibration {self.calibration.name!r} has no constants for {operation} in {dtype}"
        )

    def _correction(self, operation: str, dtype: str, *coordinates: ArrayLike) -> Array | float:
        grid = self._grids.get(self._entry(operation, dtype)[0]) if self.corrects else None
        return 1.0 if grid is None else grid.factor(*coordinates)

    @cached_property
    def _grids(self) -> dict[str, ResidualGrid]:
        path = self.calibration.residuals
        return load_grids(Path(path)) if path else {}


def _broadcast(*values: ArrayLike) -> tuple[Array, ...]:
    return tuple(np.broadcast_arrays(*(np.asarray(v, dtype=np.float64) for v in values)))
