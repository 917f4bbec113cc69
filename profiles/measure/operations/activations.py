"""GELU, and SiLU times the gate as gated feed-forward layers use it: two kernels forward, three backward."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profiles.measure.bench import Bench
from profiles.measure.operations.elementwise import elementwise

if TYPE_CHECKING:
    import torch


def _one(bench: Bench, tokens: int, dims: int, dtype: str) -> Sequence[torch.Tensor]:
    return (bench.random(tokens, dims, dtype=dtype).requires_grad_(),)


def _two(bench: Bench, tokens: int, dims: int, dtype: str) -> Sequence[torch.Tensor]:
    return tuple(bench.random(tokens, dims, dtype=dtype).requires_grad_() for _ in range(2))


def _gelu(x: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    return functional.gelu(x, approximate="tanh")


def _silu_mul(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    return functional.silu(gate) * up


GELU = elementwise("gelu", _one, _gelu, forward=2, backward=3)
SILU_MUL = elementwise("silu_mul", _two, _silu_mul, forward=5, backward=9)
