"""RMSNorm and LayerNorm over the hidden size.

Backward, one kernel reads the gradient and the input and writes the input's gradient, another reads both
again for the gradients of scale and shift.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profiles.measure.bench import Bench
from profiles.measure.operations.elementwise import elementwise

if TYPE_CHECKING:
    import torch


def _inputs(bench: Bench, tokens: int, dims: int, dtype: str) -> Sequence[torch.Tensor]:
    return bench.random(tokens, dims, dtype=dtype).requires_grad_(), bench.random(
        dims, dtype=dtype
    ).requires_grad_()


def _rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    return functional.rms_norm(x, weight.shape, weight)


def _layer_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    return functional.layer_norm(x, weight.shape, weight, weight)


RMS_NORM = elementwise("rms_norm", _inputs, _rms_norm, forward=2, backward=5, small=True)
LAYER_NORM = elementwise("layer_norm", _inputs, _layer_norm, forward=2, backward=5)
