"""Rotary position embedding on queries or keys: x cos + rotate_half(x) sin, five kernels each way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profiles.measure.bench import Bench
from profiles.measure.operations.elementwise import elementwise

if TYPE_CHECKING:
    import torch

HEAD_DIM = 128


def _inputs(bench: Bench, tokens: int, dims: int, dtype: str) -> Sequence[torch.Tensor]:
    x = bench.random(tokens, dims // HEAD_DIM, HEAD_DIM, dtype=dtype).requires_grad_()
    cosines, sines = (bench.random(tokens, 1, HEAD_DIM, dtype=dtype) for _ in range(2))
    return x, cosines, sines


def _rope(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    import torch

    left, right = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-right, left), dim=-1) * sines


ROPE = elementwise("rope", _inputs, _rope, forward=10, backward=10)
