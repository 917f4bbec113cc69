"""The residual addition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profiles.measure.bench import Bench
from profiles.measure.operations.elementwise import elementwise

if TYPE_CHECKING:
    import torch


def _inputs(bench: Bench, tokens: int, dims: int, dtype: str) -> Sequence[torch.Tensor]:
    return bench.random(tokens, dims, dtype=dtype), bench.random(tokens, dims, dtype=dtype)


def _add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x + y


ADD = elementwise("add", _inputs, _add, forward=3, small=True)
