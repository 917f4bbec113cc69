"""A gated mixture-of-experts layer after routing, with tokens spread evenly over the experts.

It gathers the tokens by expert, runs the two grouped products with SiLU times gate between them, and
adds the weighted results back. ``tokens`` are those that enter the layer; of their ``topk`` copies this
device computes one in ``ep``, on ``n_experts / ep`` experts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from profiles.measure.bench import BYTES_PER_ELEMENT, Bench, MeasuredOperation, Scope, Values
from profiles.measure.machine import require_torch
from profiles.measure.operations.elementwise import gradient_call
from profiles.measure.shapes import Shape, halved, lettered_shapes, shrunk
from profiles.measure.timing import Call

if TYPE_CHECKING:
    import torch


def _copies(tokens: int, topk: int, ep: int) -> int:
    return max(1, tokens * topk // ep)


def _smaller(shape: Shape) -> Shape:
    if shape["t"] > 64:
        return halved(shape, "t")
    if shape["h"] * shape["i"] > 128 * 128:
        return halved(shape, "h" if shape["h"] > shape["i"] else "i")
    return halved(shape, "e" if shape["e"] > shape["ep"] else "t")


def _kernel(scope: Scope) -> str:
    functional = require_torch().nn.functional
    supported = scope.machine.kind == "cpu" or scope.main_dtype == "bf16"
    return "grouped_mm" if supported and hasattr(functional, "grouped_mm") else "loop"


def _plan(scope: Scope, direction: str) -> Iterator[Values]:
    dtype = scope.main_dtype
    passes = 3.0 if direction == "backward" else 1.0
    element = BYTES_PER_ELEMENT[dtype]

    def work(shape: Shape) -> tuple[float, float]:
        weights = 3.0 * shape["h"] * shape["i"]
        copies = _copies(shape["t"], shape["k"], shape["ep"])
        return passes * 2 * copies * weights, passes * element * weights * shape["e"] / shape["ep"]

    shapes = lettered_shapes("moe", scope.mode)
    if direction == "backward":  # few, and large enough to be training
        shapes = [shape for shape in shapes if shape["t"] >= 4096][:4]
    for shape in shrunk(shapes, scope, work, _smaller):
        yield {
            "dtype": dtype,
            "direction": direction,
            "kernel": _kernel(scope),
            "tokens": shape["t"],
            "hidden": shape["h"],
            "inter": shape["i"],
            "topk": shape["k"],
            "n_experts": shape["e"],
            "tp": 1,
            "ep": shape["ep"],
            "dist": "balanced",
        }


class _Layer:
    """Weights, routing and the forward pass of one device's share of the experts."""

    def __init__(self, values: Values, bench: Bench) -> None:
        torch, self.functional = bench.torch, bench.torch.nn.functional
        hidden, inter, dtype = int(values["hidden"]), int(values["inter"]), str(values["dtype"])
        tokens, topk, ep = int(values["tokens"]), int(values["topk"]), int(values["ep"])
        experts = max(1, int(values["n_experts"]) // ep)
        copies = _copies(tokens, topk, ep)
        self.grouped = values["kernel"] == "grouped_mm"
        self.x = bench.random(tokens, hidden, dtype=dtype)
        self.up = bench.random(experts, hidden, 2 * inter, dtype=dtype)
        self.down = bench.random(experts, inter, hidden, dtype=dtype)
        self.rows = bench.integers(tokens, copies)
        self.gates = torch.rand(copies, 1, device=bench.device).to(self.x.dtype)
        bounds = torch.arange(1, experts + 1, dtype=torch.int64) * copies // experts
        self.ends = bounds.to(device=bench.device, dtype=torch.int32)
        self.sizes = torch.diff(bounds, prepend=torch.zeros(1, dtype=torch.int64)).tolist()

    def product(self, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """The rows of each expert times its weights."""
        if self.grouped:
            return self.functional.grouped_mm(rows, weights, offs=self.ends)
        import torch

        parts = zip(rows.split(self.sizes), weights, strict=True)
        return torch.cat([part @ weight for part, weight in parts])

    def __call__(self) -> torch.Tensor:
        import torch

        gate, up = self.product(self.x[self.rows], self.up).chunk(2, dim=-1)
        result = self.product(self.functional.silu(gate) * up, self.down)
        return torch.zeros_like(self.x).index_add_(0, self.rows, result * self.gates)


def _prepare_forward(values: Values, bench: Bench) -> Sequence[Call]:
    return [_Layer(values, bench)]


def _prepare_backward(values: Values, bench: Bench) -> Sequence[Call]:
    layer = _Layer(values, bench)
    leaves = [tensor.requires_grad_() for tensor in (layer.x, layer.up, layer.down)]
    return [gradient_call(bench, layer(), leaves)]


def _backward_plan(scope: Scope) -> Iterator[Values]:
    return _plan(scope, "backward") if scope.mode == "full" else iter(())


MOE = MeasuredOperation("moe", "moe", lambda scope: _plan(scope, "forward"), _prepare_forward)
MOE_BACKWARD = MeasuredOperation("moe_backward", "moe", _backward_plan, _prepare_backward)
