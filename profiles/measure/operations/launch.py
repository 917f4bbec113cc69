"""What launching a kernel costs: replayed from a graph, and issued by the host, alone and in training.

The kernels touch a few bytes, so their time is launch overhead. In these rows ``tokens`` is the number
of kernels that ``time_us`` covers, ``dims`` is 1 and ``bytes_per_token`` 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from profiles.measure.bench import Bench, MeasuredOperation, Scope, Values
from profiles.measure.timing import Call

if TYPE_CHECKING:
    import torch

BLOCKS = 4
BLOCK_KERNELS = 10 + 24
"""Forward: two norms, four linear layers, attention, GELU, two adds. Backward: two a norm, three a linear
layer (input, weight, bias), three for attention and two that copy its gradients, one for GELU, two adds."""

EAGER_KERNELS = {
    "launch_eager": 1,
    "launch_eager_linear": 1,
    "launch_eager_norm": 1,
    "launch_eager_training": BLOCKS * BLOCK_KERNELS,
}
WIDTH = 16
CHAIN = 100  # calls in a row, so that the device always lags behind the host


def _row(op: str, kernels: int, dtype: str) -> Values:
    return {
        "op": op,
        "dtype": dtype,
        "direction": "forward",
        "tokens": kernels,
        "dims": 1,
        "bytes_per_token": 0,
    }


def _graph_plan(scope: Scope) -> Iterator[Values]:
    if scope.machine.kind == "cuda":
        yield _row("launch_graph", 1, scope.main_dtype)


def _eager_plan(scope: Scope) -> Iterator[Values]:
    for op, kernels in EAGER_KERNELS.items():
        yield _row(op, kernels, scope.main_dtype)


def _prepare(values: Values, bench: Bench) -> Sequence[Call]:
    from torch.nn import functional

    dtype = str(values["dtype"])
    x = bench.random(WIDTH, WIDTH, dtype=dtype)
    weight = bench.random(WIDTH, WIDTH, dtype=dtype)

    calls: dict[str, Call] = {
        "launch_graph": lambda: x.add_(1),
        "launch_eager": lambda: x.add_(1),
        "launch_eager_linear": lambda: functional.linear(x, weight),
        "launch_eager_norm": lambda: functional.layer_norm(x, (WIDTH,)),
        "launch_eager_training": _training(bench, dtype),
    }
    return [calls[str(values["op"])]] * CHAIN


def _training(bench: Bench, dtype: str) -> Call:
    """A forward and backward pass through transformer blocks that are too small to take time."""
    from torch import nn
    from torch.nn import functional

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
            self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.up, self.down = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.qkv(self.norms[0](x)).view(1, WIDTH, 3, 1, WIDTH).permute(2, 0, 3, 1, 4)
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.transpose(1, 2).reshape(1, WIDTH, WIDTH))
            return x + self.down(functional.gelu(self.up(self.norms[1](x)), approximate="tanh"))

    blocks = nn.Sequential(*(Block() for _ in range(BLOCKS))).to(bench.device, bench.dtype(dtype))
    start = bench.random(1, WIDTH, WIDTH, dtype=dtype).requires_grad_()
    gradient = bench.random(1, WIDTH, WIDTH, dtype=dtype)

    def call() -> None:
        blocks.zero_grad(set_to_none=True)
        blocks(start).backward(gradient)

    return call


LAUNCH_GRAPH = MeasuredOperation("launch_graph", "elementwise", _graph_plan, _prepare)
LAUNCH_EAGER = MeasuredOperation("launch_eager", "elementwise", _eager_plan, _prepare, method="host")
