"""Matrix products in the three layouts of a linear layer's forward and backward pass.

For y = x Wᵀ with x of (tokens, in) and W of (out, in), the columns m, n, k are those of the product
itself: forward (tokens, out, in), dgrad dx = dy W (tokens, in, out), wgrad dW = dyᵀ x (out, in, tokens).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profiles.measure.bench import BYTES_PER_ELEMENT, Bench, MeasuredOperation, Scope, Values
from profiles.measure.shapes import Shape, gemm_shapes, halved, shrunk
from profiles.measure.timing import Call


def fitting_shapes(block: str, scope: Scope, dtype: str) -> Iterator[Shape]:
    """The block's shapes, scaled down to the scope by halving the largest dimension."""
    element = BYTES_PER_ELEMENT[dtype]

    def work(shape: Shape) -> tuple[float, float]:
        m, n, k = shape["m"], shape["n"], shape["k"]
        return 2.0 * m * n * k, element * (m * k + n * k + m * n)

    def smaller(shape: Shape) -> Shape:
        return halved(shape, max("mnk", key=lambda letter: shape[letter]))

    return shrunk(gemm_shapes(block, scope.mode), scope, work, smaller)


def _plan(scope: Scope) -> Iterator[Values]:
    for dtype in scope.dtypes:
        if dtype != "fp8":
            for shape in fitting_shapes("gemm", scope, dtype):
                yield {"dtype": dtype, "layout": "forward", **shape}


def _layouts_plan(scope: Scope) -> Iterator[Values]:
    for dtype in scope.dtypes:
        if dtype != "fp8":
            for shape in fitting_shapes("layouts", scope, dtype):
                tokens, out, into = shape["m"], shape["n"], shape["k"]
                yield {"dtype": dtype, "layout": "dgrad", "m": tokens, "n": into, "k": out}
                yield {"dtype": dtype, "layout": "wgrad", "m": out, "n": into, "k": tokens}


def prepare(values: Values, bench: Bench) -> Sequence[Call]:
    """Calls of one product; the second operand rotates, the first stays, as an activation does."""
    m, n, k = int(values["m"]), int(values["n"]), int(values["k"])
    dtype, layout = str(values["dtype"]), values["layout"]
    mm = bench.torch.mm
    if layout == "forward":
        x = bench.random(m, k, dtype=dtype)
        return [lambda w=w: mm(x, w.t()) for w in bench.rotation(n, k, dtype=dtype)]
    if layout == "dgrad":
        dy = bench.random(m, k, dtype=dtype)
        return [lambda w=w: mm(dy, w) for w in bench.rotation(k, n, dtype=dtype)]
    dy = bench.random(k, m, dtype=dtype)
    return [lambda x=x: mm(dy.t(), x) for x in bench.rotation(k, n, dtype=dtype)]


GEMM = MeasuredOperation("gemm", "gemm", _plan, prepare)
GEMM_LAYOUTS = MeasuredOperation("gemm_layouts", "gemm", _layouts_plan, prepare)
