"""Causal attention over whole sequences, forward and backward."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from profiles.measure.bench import BYTES_PER_ELEMENT, Bench, MeasuredOperation, Scope, Values
from profiles.measure.operations.attention_kernels import flash, flashinfer_prefill, kernels, sdpa
from profiles.measure.operations.elementwise import gradient_call
from profiles.measure.shapes import Shape, halved, lettered_shapes, shrunk
from profiles.measure.timing import Call

if TYPE_CHECKING:
    import torch


def columns(shape: Shape) -> Values:
    """The columns of a shape given by letters."""
    return {
        "batch": shape["b"],
        "seq_q": shape["q"],
        "seq_kv": shape["kv"],
        "n_heads": shape["h"],
        "n_kv_heads": shape["g"],
        "head_dim": shape["d"],
    }


def smaller_heads(shape: Shape) -> Shape:
    """The shape with its heads halved, the ratio of query to KV heads kept while that is possible."""
    heads = max(1, shape["h"] // 2)
    groups = min(heads, max(1, shape["g"] // 2))
    return shape | {"h": heads - heads % groups, "g": groups}


LONG = 1024
"""Positions above which it is the sequence that is cut first."""


def _smaller(shape: Shape) -> Shape:
    if shape["q"] > LONG:
        return halved(halved(shape, "q"), "kv")
    if shape["b"] > 1:
        return halved(shape, "b")
    if shape["h"] > 2:
        return smaller_heads(shape)
    return halved(halved(shape, "q"), "kv")


def _plan(scope: Scope, block: str, direction: str) -> Iterator[Values]:
    backward = direction == "backward"
    passes = 3.5 if backward else 1.0  # the backward pass recomputes QKᵀ and has four more products

    for dtype in scope.dtypes:
        if dtype in ("fp8", "tf32"):
            continue

        def work(shape: Shape, dtype: str = dtype) -> tuple[float, float]:
            scores = shape["b"] * shape["h"] * shape["q"] * shape["kv"]
            tokens = shape["b"] * (shape["h"] * shape["q"] + shape["g"] * shape["kv"])
            moved_bytes = 2.0 * tokens * shape["d"] * BYTES_PER_ELEMENT[dtype]
            return passes * 2 * scores * shape["d"], passes * moved_bytes

        for shape in shrunk(lettered_shapes(block, scope.mode), scope, work, _smaller):
            for kernel in kernels(scope, backward):
                yield {"dtype": dtype, "direction": direction, "kernel": kernel, **columns(shape)}


def _inputs(values: Values, bench: Bench) -> Iterator[list[torch.Tensor]]:
    batch, head_dim, dtype = int(values["batch"]), int(values["head_dim"]), str(values["dtype"])
    heads, kv_heads = int(values["n_heads"]), int(values["n_kv_heads"])
    seq_q, seq_kv = int(values["seq_q"]), int(values["seq_kv"])
    moved_bytes = batch * (heads * seq_q + 2 * kv_heads * seq_kv) * head_dim * BYTES_PER_ELEMENT[dtype]
    for _ in range(bench.copies(moved_bytes)):
        tensors = [
            bench.random(batch, length, count, head_dim, dtype=dtype)
            for length, count in ((seq_q, heads), (seq_kv, kv_heads), (seq_kv, kv_heads))
        ]
        yield [t.transpose(1, 2) for t in tensors] if values["kernel"] == "sdpa" else tensors


def _prepare_forward(values: Values, bench: Bench) -> Sequence[Call]:
    if values["kernel"] == "flashinfer":
        return flashinfer_prefill(bench, list(_inputs(values, bench)))
    apply = sdpa if values["kernel"] == "sdpa" else flash
    return [lambda t=tensors: apply(*t, causal=True) for tensors in _inputs(values, bench)]


def _prepare_backward(values: Values, bench: Bench) -> Sequence[Call]:
    apply = sdpa if values["kernel"] == "sdpa" else flash
    calls = []
    for tensors in _inputs(values, bench):
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        calls.append(gradient_call(bench, apply(*leaves, causal=True), leaves))
    return calls


ATTENTION = MeasuredOperation(
    "attention", "attention_prefill", lambda scope: _plan(scope, "attention", "forward"), _prepare_forward
)
ATTENTION_BACKWARD = MeasuredOperation(
    "attention_backward",
    "attention_prefill",
    lambda scope: _plan(scope, "backward", "backward"),
    _prepare_backward,
)
