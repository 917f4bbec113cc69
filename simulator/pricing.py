"""Seconds of ops: one array call per kernel class.

>>> from hwmodels.cluster import clusters
>>> from simulator.models import models
>>> from simulator.ops import SERVING, Batch, Rank, Shard, layer
>>> cluster = clusters.get("dgx-h100").resized(8)
>>> batch = Batch.prefill(1, 512, 2048) + Batch.decode(64, 1500)
>>> ops = layer(Rank(models.get("llama3-8b"), batch, Shard(tensor=2), how=SERVING))
>>> prices = Prices(cluster.device.kernels.using("vllm"), cluster, quantises=True)
>>> seconds = price(ops, prices)
>>> for op, time in list(zip(ops, seconds))[1:4]:
...     print(f"{op.name:<16} {1e6 * float(time):5.1f} us")
query_key_value   20.8 us
rope               3.3 us
append             1.7 us
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hwmodels.cluster import Cluster
from hwmodels.kernels import KernelModel
from hwmodels.records import record
from simulator.ops.op import (
    Attention,
    Collective,
    Decode,
    ExpertLayer,
    MemoryBound,
    Op,
    Product,
    Scan,
    StateStep,
)
from simulator.site import Site

Array = NDArray[np.floating]

OLDER_KERNELS = {
    ("flash-1", "ampere"): (0.626, 0.5),
    ("flash-1", "hopper"): (0.37, 0.33),
    ("flash-1-triton", "ampere"): (0.54, 0.5),
    ("flash-1-triton", "hopper"): (0.37, 0.33),
    ("flash-2", "hopper"): (0.57, 0.57),
    ("flash-2", "blackwell"): (0.33, 0.24),
    ("flash-2", "cdna4"): (0.7, 0.7),
}
"""Speed of older attention kernels over the fastest one of a device generation, for heads of up to 64 and
of more. On A100 FlashAttention-1 reaches 107 of FlashAttention-2's 171 TFLOP/s with heads of 64 and about
half of it with heads of 128 (Dao 2023, figure 4, causal, forward and backward); on H100 FlashAttention-2
reaches 370 of FlashAttention-3's 648 forward and the same share backward (Shah et al. 2024, figures 5 and
6); on B200, without the new tensor-core instructions, 380 forward and 334 backward with heads of 64
(flash-attention issue 1589; cuDNN 1,157, pull request 2605) and 354 with heads of 128 (tritonbench pull
request 171; FlashAttention-4 1,535, pull request 2280). On MI355X torch's own attention (AOTriton) is taken
at the share of composable kernel's speed that it reaches on MI300X (estimate_kernels.py).

FlashAttention-1 in Triton reaches 0.54 with heads of 64: three steps of MPT-350m over 32,768 and 65,536
tokens, of which attention takes four fifths. MPT-125m and shorter sequences, which were not used, give 0.51
to 0.57. Heads of 128 and H100 are taken as those of the CUDA kernel."""

FLASH_2 = "flash-attention-2"
"""Name of FlashAttention-2's kernels in calibrations. On Hopper they stay below the power limit that slows
the newer kernels down, so separate measurements are used where a calibration has them."""

UNALIGNED_SHARE = 0.63
"""Share of the 32-bit vector peak that a batched product of 16-bit matrices reaches where rows do not start
on 16 bytes: cuBLAS of CUDA 11 has no tensor-core kernel for it. 12.2 of A100's 19.5 TFLOP/s (PyTorch issue
83272, 384 products of 1024 x 1024 by 1024 x 140, bf16, CUDA 11.6)."""

FULL_LOAD = {"cdna": 4}
"""Bytes that a lane loads at once at the full rate of the first cache, by family of devices; 16 elsewhere.
Load units of GCN, CDNA's forerunner, return 16 values of 32 bits a cycle (GPUOpen, Understanding Memory
Coalescing on GCN)."""


NO_TIME = np.zeros(())
"""Seconds of an op that is idle in all cases: zero."""

FEW_CASES = 32
"""Minimum number of cases for which equal cases are merged."""
MANY_CASES = 4096
"""The same of cases on several axes."""


@record()
class Prices:
    """Hardware and conditions under which ops are priced.

    Args:
        kernels: kernel times of the device: sustained or not, corrected or not, and of which library.
        cluster: cluster whose links carry collectives; None without collectives.
        cold: time of a product with operands in memory over time with operands in the cache.
        quantises: whether products cast their activations in the same call, as in their measured points.
        served: products are those of serving libraries, corrected by measured points, with casts fused into
            the kernel before.
        experts_as_dense: whether products of experts fill tiles as dense ones do, as at a training step's
            sizes; else they are priced by the grouped form.
        product_share: speed of dense and batched products over that of the calibrated library.
        site: learned factors of kernel classes and of the exchange with experts.
    """

    kernels: KernelModel
    cluster: Cluster | None = None
    cold: float = 1.0
    quantises: bool = False
    served: bool = False
    experts_as_dense: bool = False
    product_share: float = 1.0
    site: Site | None = None


def price(ops: Sequence[Op], prices: Prices) -> list[Array]:
    """Seconds of each op, in the order of ``ops``; each of shape (cases,), or () where its sizes are scalars.

    Idle ops take ``NO_TIME``.

    Raises:
        InputError: a number format that the device lacks.
    """
    seconds: list[Array] = [NO_TIME] * len(ops)
    calls: dict[tuple[Any, ...], list[int]] = {}
    for index, op in enumerate(ops):
        if not op.is_idle:
            calls.setdefault(_key(op, prices), []).append(index)
    for key, indices in calls.items():
        kind, sizes = CALLS[key[0]]
        rows = [sizes(ops[index]) for index in indices]
        members, shape = [ops[index] for index in indices], _cases(rows)
        if len(shape) > 1:
            columns, which = _columns(rows, shape), None
            if isinstance(members[0], Product):
                columns, which = _distinct_sizes(columns)
            found = kind(members, prices, *columns)
            if which is not None:
                found = np.take_along_axis(found, which, axis=-1).reshape(len(rows), *shape)
            found = np.broadcast_to(found, (len(rows), *shape))
        else:
            stacked, which = _distinct(_stacked(rows, shape))
            found = kind(members, prices, *stacked)
            found = found if which is None else np.take(found, which, axis=-1)
        for index, row in zip(indices, found, strict=True):
            seconds[index] = row * ops[index].repeats
    if prices.site is not None:
        for index, op in enumerate(ops):
            if seconds[index] is not NO_TIME:
                seconds[index] = seconds[index] * _site_factor(op, prices, prices.site)
    return seconds


def _site_factor(op: Op, prices: Prices, site: Site) -> Array | float:
    """Learned factor of an op; the cluster's links already have theirs, which is not that of the exchange."""
    if not isinstance(op, Collective):
        return site.kernel(op.kind)
    if op.kind != "expert" or prices.cluster is None:
        return 1.0
    inside, across = prices.cluster.link_pace
    far = prices.cluster.level_of(op.size, op.stride) == len(prices.cluster.levels)
    return site.factor("exchange") / np.where(far, across, inside)


def _cases(rows: list[tuple[Any, ...]]) -> tuple[int, ...]:
    """Common shape of the sizes of ops."""
    shapes = {getattr(size, "shape", ()) for row in rows for size in row} - {()}
    return shapes.pop() if len(shapes) == 1 else np.broadcast_shapes(*shapes)


def _columns(rows: list[tuple[Any, ...]], shape: tuple[int, ...]) -> list[Array]:
    """Each size of many ops side by side, on the axes on which it varies: it broadcasts to (ops, *shape)."""
    columns = []
    for sizes in zip(*rows, strict=True):
        own = np.broadcast_shapes(*(np.shape(size) for size in sizes))
        column = np.empty((len(rows), *(1,) * (len(shape) - len(own)), *own))
        for number, size in enumerate(sizes):
            column[number] = size
        columns.append(column)
    return columns


def _distinct_sizes(columns: list[Array]) -> tuple[list[Array], NDArray[np.integer] | None]:
    """Distinct values of the one size that varies over several axes, as the rows of a chunk's context do.

    Args:
        columns: sizes as `_columns` returns them.

    Returns:
        Sizes of shape (ops, distinct) or (ops, 1), and the index of every case's, shape (ops, cases); the
        sizes as they are and None where several vary, or few would be merged.
    """
    varied = [index for index, column in enumerate(columns) if column.size > len(column)]
    if len(varied) != 1 or columns[varied[0]].size < MANY_CASES:
        return columns, None
    column = columns[varied[0]]
    most = int(column.max())
    if most > column.size or np.any(column != np.floor(column)):
        return columns, None
    whole = column.astype(np.int64)
    present = np.zeros(most + 1, bool)
    present[whole] = True
    distinct = np.flatnonzero(present).astype(np.float64)
    places = (np.cumsum(present) - 1)[whole].reshape(len(column), -1)
    sizes = [other.reshape(len(other), 1) for other in columns if other is not column]
    sizes.insert(varied[0], np.broadcast_to(distinct, (len(column), len(distinct))))
    return sizes, places


def _stacked(rows: list[tuple[Any, ...]], shape: tuple[int, ...]) -> Array:
    """Sizes of many ops side by side, shape (sizes, ops, cases)."""
    sizes = np.empty((len(rows[0]), len(rows), *shape))
    for number, row in enumerate(rows):
        for column, size in enumerate(row):
            sizes[column, number] = size
    return sizes


def _distinct(sizes: Array) -> tuple[Array, NDArray[np.integer] | None]:
    """Distinct cases by size, and the index of every case's distinct one; None if no case is merged.

    Args:
        sizes: shape (sizes, ops, cases); few cases are returned unmerged.
    """
    if sizes.ndim != 3 or sizes.shape[-1] < FEW_CASES:
        return sizes, None
    words = sizes.reshape(-1, sizes.shape[-1]).view(np.uint64)
    mixed = np.zeros(words.shape[-1], dtype=np.uint64)
    for row in words:
        mixed = (mixed ^ (row >> np.uint64(29)) ^ row) * np.uint64(0x9E3779B97F4A7C15)
    _, first, which = np.unique(mixed, return_index=True, return_inverse=True)
    distinct = np.take(sizes, first, axis=-1)
    # Different cases with equal hashes: merge nothing.
    same = np.array_equal(np.take(distinct, which, axis=-1), sizes)
    return (distinct, which) if same else (sizes, None)


def _key(op: Op, prices: Prices) -> tuple[Any, ...]:
    """Ops with equal keys are priced in one call."""
    if isinstance(op, Product):
        return _product_form(op, prices), op.dtype, op.weights, op.row_bytes
    if isinstance(op, Attention):
        return "attention", op.dtype, op.kv_dtype, op.causal, op.direction, op.appends, op.version
    if isinstance(op, Decode):
        return "decode", op.dtype, op.kv_dtype, op.latent
    if isinstance(op, Scan):
        return "scan", op.dtype, op.direction
    if isinstance(op, StateStep):
        return "state", op.dtype
    if isinstance(op, ExpertLayer):
        return "experts", op.dtype, op.skewed
    if isinstance(op, Collective):
        return "collective", op.operation
    if isinstance(op, MemoryBound):
        return ("memory",)
    raise TypeError(f"an op of unknown class: {type(op).__name__}")


def _product_form(op: Product, prices: Prices) -> str:
    if op.role == "expert" and not prices.experts_as_dense:
        return "grouped"
    served = prices.quantises or prices.served
    return "served" if served and np.all(np.asarray(op.groups) == 1) else "products"


# One function per kernel class: (ops of one key, prices, sizes of shape (ops, cases)) -> seconds.


def _products(ops: list[Product], prices: Prices, groups: Array, m: Array, n: Array, k: Array) -> Array:
    kernels, first = prices.kernels, ops[0]
    seconds = kernels.batched_gemm(groups, m, n, k, first.dtype, [op.layout for op in ops])
    flops = 2 * groups * m * n * k
    if first.weights:
        seconds = np.maximum(prices.cold * seconds, kernels.settled_seconds(flops, first.dtype))
        shares = np.array([kernels.expert_share(op.layout) if op.role == "expert" else 1.0 for op in ops])
        seconds = seconds * shares.reshape(-1, *(1,) * (seconds.ndim - 1))
    else:
        seconds = _unaligned(first, prices, seconds, flops)
    return seconds / prices.product_share


def _unaligned(op: Product, prices: Prices, aligned: Array, flops: Array) -> Array:
    """Seconds of batched products of heads, from the seconds with rows aligned to 16 bytes."""
    if op.row_bytes == 16:
        return aligned
    device = prices.kernels.device
    if (
        prices.cluster is not None
        and prices.cluster.device.vendor == "nvidia"
        and op.dtype in ("bf16", "fp16")
    ):
        return np.maximum(aligned, flops / (UNALIGNED_SHARE * device.peak("fp32")))
    # Other alignments keep the matrix units, but load 8, 4 or 2 bytes at a time.
    full = FULL_LOAD.get(device.generation.rstrip("0123456789"), 16)
    return aligned * np.maximum(full / op.row_bytes, 1.0)


def _served_products(
    ops: list[Product], prices: Prices, groups: Array, m: Array, n: Array, k: Array
) -> Array:
    seconds = prices.kernels.gemm(m, n, k, ops[0].dtype, quantises=prices.quantises)
    if ops[0].weights and prices.served:
        seconds = np.maximum(seconds, prices.kernels.cold_read_seconds(n, k, ops[0].dtype))
    return prices.cold * seconds


def _grouped_products(
    ops: list[Product], prices: Prices, groups: Array, m: Array, n: Array, k: Array
) -> Array:
    return prices.cold * prices.kernels.grouped_gemm(m * groups, n, k, groups, ops[0].dtype)


def _attention(ops: list[Attention], prices: Prices, *sizes: Array) -> Array:
    first, kernels = ops[0], prices.kernels
    sequences, queries, keys, heads, kv_heads, head_dim, v_head_dim = sizes
    older, generation = first.version, kernels.device.generation
    if older in ("flash-1", "flash-1-triton", "flash-2") and FLASH_2 in kernels.calibration.libraries:
        kernels = kernels.using(FLASH_2)
        # Both versions run the A100's instructions: their ratio is the A100's.
        generation = "ampere"
    seconds = kernels.attention(
        sequences,
        queries,
        keys,
        heads,
        kv_heads,
        head_dim,
        causal=first.causal,
        dtype=first.dtype,
        direction=first.direction,
        v_head_dim=v_head_dim,
        appends=first.appends,
        kv_dtype=first.kv_dtype,
    )
    narrow, wide = OLDER_KERNELS.get((older, generation), (1.0, 1.0))
    return seconds / np.where(head_dim <= 64, narrow, wide)


def _decode(ops: list[Decode], prices: Prices, *sizes: Array) -> Array:
    first, kernels = ops[0], prices.kernels
    sequences, keys, heads, kv_heads, head_dim, v_head_dim = sizes
    if first.latent:
        # The cached vector is the latent one, which is key and value, and the rotary part of keys.
        return kernels.mla_decode(
            sequences,
            keys,
            heads,
            v_head_dim,
            head_dim - v_head_dim,
            dtype=first.dtype,
            kv_dtype=first.kv_dtype,
        )
    return kernels.attention_decode(
        sequences, keys, heads, kv_heads, head_dim, first.dtype, kv_dtype=first.kv_dtype
    )


def _scan(ops: list[Scan], prices: Prices, *sizes: Array) -> Array:
    sequences, tokens, heads, key_heads, key_dim, value_dim, chunk, delta = sizes
    shape = key_dim, value_dim, chunk, key_heads, delta
    first = ops[0]
    return prices.kernels.linear_attention(sequences, tokens, heads, *shape, first.dtype, first.direction)


def _state_step(ops: list[StateStep], prices: Prices, *sizes: Array) -> Array:
    return prices.kernels.linear_decode(*sizes, dtype=ops[0].dtype)


def _experts(ops: list[ExpertLayer], prices: Prices, *sizes: Array) -> Array:
    return prices.kernels.expert_layer(*sizes, dtype=ops[0].dtype, skewed=ops[0].skewed)


def _memory_bound(ops: list[MemoryBound], prices: Prices, moved: Array, starts: Array) -> Array:
    kinds = [op.variant or op.kind for op in ops]
    seconds = prices.kernels.memory_bound_kinds(moved, kinds)
    if np.all(starts == 1):
        return seconds
    start = prices.kernels.memory_bound_kinds(np.zeros(len(kinds)), kinds)
    return seconds + (starts - 1) * start.reshape(-1, *(1,) * (seconds.ndim - 1))


def _collective(
    ops: list[Collective],
    prices: Prices,
    moved: Array,
    size: Array,
    stride: Array,
    speedup: Array,
    least: Array,
    start: Array,
) -> Array:
    if prices.cluster is None:
        raise ValueError("collectives are priced on a cluster")
    # A library's rate scales the time of bytes, not the start-up of a message.
    seconds = prices.cluster.collective(ops[0].operation, moved / speedup, size, stride)
    return np.maximum(seconds, least) + start


def _product_sizes(op: Product) -> tuple[Any, ...]:
    return op.groups, op.m, op.n, op.k


CALLS: dict[str, tuple[Callable[..., Array], Callable[[Any], tuple[Any, ...]]]] = {
    "products": (_products, _product_sizes),
    "served": (_served_products, _product_sizes),
    "grouped": (_grouped_products, _product_sizes),
    "attention": (
        _attention,
        lambda op: (
            op.sequences,
            op.queries,
            op.keys,
            op.heads,
            op.kv_heads,
            op.head_dim,
            op.v_head_dim,
        ),
    ),
    "decode": (
        _decode,
        lambda op: (op.sequences, op.keys, op.heads, op.kv_heads, op.head_dim, op.v_head_dim),
    ),
    "scan": (
        _scan,
        lambda op: (
            op.sequences,
            op.tokens,
            op.heads,
            op.key_heads,
            op.key_dim,
            op.value_dim,
            op.chunk,
            op.delta,
        ),
    ),
    "state": (_state_step, lambda op: (op.sequences, op.heads, op.key_dim, op.value_dim)),
    "experts": (
        _experts,
        lambda op: (
            op.tokens,
            op.hidden,
            op.feed_forward,
            op.top_k,
            op.experts,
            op.tensor,
            op.expert_parallel,
        ),
    ),
    "memory": (_memory_bound, lambda op: (op.bytes, op.starts)),
    "collective": (
        _collective,
        lambda op: (op.bytes, op.size, op.stride, op.speedup, op.least_s, op.start_s),
    ),
}
"""Pricing of kernel classes: the function, and the sizes that it takes."""
