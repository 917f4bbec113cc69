"""fp8 products with one scale a tensor, and the quantisation before them, timed apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profiles.measure.bench import Bench, MeasuredOperation, Scope, Values
from profiles.measure.operations.elementwise import token_counts
from profiles.measure.operations.gemm import fitting_shapes
from profiles.measure.timing import Call

HIDDEN = 4096


def _plan(scope: Scope) -> Iterator[Values]:
    if "fp8" in scope.dtypes:
        for shape in fitting_shapes("fp8", scope, "fp8"):
            yield {"dtype": "fp8", "layout": "forward", **shape}


def _prepare(values: Values, bench: Bench) -> Sequence[Call]:
    m, n, k = int(values["m"]), int(values["n"]), int(values["k"])
    torch = bench.torch
    x = bench.random(m, k, dtype="fp8")
    scale = torch.ones((), device=bench.device)

    def call(w: object) -> object:
        return torch._scaled_mm(x, w, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True)

    return [lambda w=w: call(w.t()) for w in bench.rotation(n, k, dtype="fp8")]


def _quantize_plan(scope: Scope) -> Iterator[Values]:
    if "fp8" in scope.dtypes:
        bytes_per_token = 3 * HIDDEN  # reads bf16, writes fp8
        for tokens in token_counts(scope, bytes_per_token):
            yield {
                "op": "quantize_fp8",
                "dtype": "bf16",
                "direction": "forward",
                "tokens": tokens,
                "dims": HIDDEN,
                "bytes_per_token": bytes_per_token,
            }


def _quantize_prepare(values: Values, bench: Bench) -> Sequence[Call]:
    x = bench.random(int(values["tokens"]), int(values["dims"]), dtype="bf16")
    fp8 = bench.dtype("fp8")
    largest = bench.torch.finfo(fp8).max
    return [lambda: (x * (largest / x.abs().amax())).to(fp8)]


SCALED_GEMM = MeasuredOperation("gemm_fp8", "gemm", _plan, _prepare)
QUANTIZE = MeasuredOperation("quantize_fp8", "elementwise", _quantize_plan, _quantize_prepare)
