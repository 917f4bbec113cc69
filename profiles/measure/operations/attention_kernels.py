"""The attention kernels that may be here: torch's own, flash-attn, FlashInfer.

Inputs are laid out (batch, heads, sequence, head_dim) for SDPA and (batch, sequence, heads, head_dim)
for the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from profiles.measure.bench import Bench, Scope
from profiles.measure.timing import Call

if TYPE_CHECKING:
    import torch

PACKAGES = {"flash": "flash_attn", "flashinfer": "flashinfer"}
FLASHINFER_WORKSPACE_BYTES = 128 * 2**20
FLASHINFER_PAGE = 16


def kernels(scope: Scope, backward: bool = False) -> tuple[str, ...]:
    """The kernels to measure: SDPA everywhere, the others on a GPU where they are installed."""
    if scope.machine.kind == "cpu":
        return ("sdpa",)
    installed = [kernel for kernel, package in PACKAGES.items() if find_spec(package) is not None]
    return ("sdpa", *(kernel for kernel in installed if not (backward and kernel == "flashinfer")))


def sdpa(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """torch's scaled dot-product attention, grouped queries included."""
    from torch.nn import functional

    grouped = q.shape[1] != k.shape[1]
    return functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=grouped)


def flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """flash-attn's dense kernel."""
    from flash_attn import flash_attn_func  # type: ignore[import-not-found]

    return flash_attn_func(q, k, v, causal=causal)


def flash_decode(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """flash-attn's kernel for one query against a cache."""
    from flash_attn import flash_attn_with_kvcache  # type: ignore[import-not-found]

    return flash_attn_with_kvcache(q, k, v, cache_seqlens=k.shape[1])


def flashinfer_prefill(bench: Bench, inputs: Sequence[Sequence[torch.Tensor]]) -> list[Call]:
    """FlashInfer's ragged batch prefill, planned once for inputs of one shape."""
    import flashinfer  # type: ignore[import-not-found]

    q, k, _ = inputs[0]
    batch, seq_q, heads, head_dim = q.shape
    starts = bench.torch.arange(batch + 1, dtype=bench.torch.int32, device=bench.device)
    wrapper = flashinfer.BatchPrefillWithRaggedKVCacheWrapper(_workspace(bench), "NHD")
    types = {"q_data_type": q.dtype, "kv_data_type": k.dtype}
    wrapper.plan(starts * seq_q, starts * k.shape[1], heads, k.shape[2], head_dim, causal=True, **types)
    ragged = [[tensor.flatten(0, 1) for tensor in tensors] for tensors in inputs]
    return [lambda t=tensors: wrapper.run(*t) for tensors in ragged]


def flashinfer_decode(
    bench: Bench, query: torch.Tensor, caches: Sequence[tuple[torch.Tensor, torch.Tensor]]
) -> list[Call]:
    """FlashInfer's paged batch decode, planned once for caches of one shape, in pages of 16 tokens."""
    import flashinfer  # type: ignore[import-not-found]

    torch, (k, _) = bench.torch, caches[0]
    batch, seq_kv, kv_heads, head_dim = k.shape
    heads, pages = query.shape[2], seq_kv // FLASHINFER_PAGE
    tensor_cores = heads // kv_heads >= 4  # FlashInfer's advice for grouped queries
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        _workspace(bench), "NHD", use_tensor_cores=tensor_cores
    )
    integers = {"dtype": torch.int32, "device": bench.device}
    wrapper.plan(
        torch.arange(batch + 1, **integers) * pages,
        torch.arange(batch * pages, **integers),
        torch.full((batch,), FLASHINFER_PAGE, **integers),
        heads,
        kv_heads,
        head_dim,
        FLASHINFER_PAGE,
        q_data_type=query.dtype,
        kv_data_type=k.dtype,
    )
    shape = (batch * pages, FLASHINFER_PAGE, kv_heads, head_dim)
    paged = [tuple(cache.reshape(shape) for cache in pair) for pair in caches]
    queries = query.squeeze(1)
    return [lambda pair=pair: wrapper.run(queries, pair) for pair in paged]


def _workspace(bench: Bench) -> torch.Tensor:
    return bench.torch.empty(FLASHINFER_WORKSPACE_BYTES, dtype=bench.torch.uint8, device=bench.device)
