"""Attention of one new token against a KV cache; the caches rotate so that they come from memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profiles.measure.bench import BYTES_PER_ELEMENT, Bench, MeasuredOperation, Scope, Values
from profiles.measure.operations.attention import columns, smaller_heads
from profiles.measure.operations.attention_kernels import flash_decode, flashinfer_decode, kernels, sdpa
from profiles.measure.shapes import Shape, halved, lettered_shapes, shrunk
from profiles.measure.timing import Call


def _smaller(shape: Shape) -> Shape:
    if shape["b"] > 4:
        return halved(shape, "b")
    if shape["h"] > 8:
        return smaller_heads(shape)
    return halved(shape, "kv")


def _plan(scope: Scope) -> Iterator[Values]:
    for dtype in scope.dtypes:
        if dtype in ("fp8", "tf32"):
            continue

        def work(shape: Shape, dtype: str = dtype) -> tuple[float, float]:
            tokens = shape["b"] * shape["kv"]
            moved_bytes = 2.0 * tokens * shape["g"] * shape["d"] * BYTES_PER_ELEMENT[dtype]
            return 4.0 * tokens * shape["h"] * shape["d"], moved_bytes

        for shape in shrunk(lettered_shapes("decode", scope.mode), scope, work, _smaller):
            for kernel in kernels(scope):
                yield {"dtype": dtype, "kernel": kernel, **columns(shape)}


def _prepare(values: Values, bench: Bench) -> Sequence[Call]:
    batch, seq_kv, head_dim = int(values["batch"]), int(values["seq_kv"]), int(values["head_dim"])
    heads, kv_heads, dtype = int(values["n_heads"]), int(values["n_kv_heads"]), str(values["dtype"])
    query = bench.random(batch, 1, heads, head_dim, dtype=dtype)
    moved_bytes = 2 * batch * seq_kv * kv_heads * head_dim * BYTES_PER_ELEMENT[dtype]
    shape = (batch, seq_kv, kv_heads, head_dim)
    caches = [
        (bench.random(*shape, dtype=dtype), bench.random(*shape, dtype=dtype))
        for _ in range(bench.copies(moved_bytes))
    ]
    if values["kernel"] == "flashinfer":
        return flashinfer_decode(bench, query, caches)
    if values["kernel"] == "flash":
        return [lambda k=k, v=v: flash_decode(query, k, v) for k, v in caches]
    # torch wants heads before sequence, and that is how its users lay out a cache
    caches = [(k.transpose(1, 2).contiguous(), v.transpose(1, 2).contiguous()) for k, v in caches]
    queries = query.transpose(1, 2)
    return [lambda k=k, v=v: sdpa(queries, k, v, causal=False) for k, v in caches]


DECODE = MeasuredOperation("attention_decode", "attention_decode", _plan, _prepare)
