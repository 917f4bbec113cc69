"""Cross-entropy in fp32 over the logits of a vocabulary of 32,768.

Log-softmax reads and writes them; backward, the gradient of the negative log-likelihood is filled, and
combined with the log-softmax. Logits of 16 bits are cast before, and their gradient after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profiles.measure.bench import Bench
from profiles.measure.operations.elementwise import elementwise

if TYPE_CHECKING:
    import torch

VOCABULARY = 32_768


def _inputs(bench: Bench, tokens: int, dims: int, dtype: str) -> Sequence[torch.Tensor]:
    return bench.random(tokens, dims, dtype=dtype).requires_grad_(), bench.integers(dims, tokens)


def _cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    return functional.cross_entropy(logits.float(), targets)


def _forward(dtype: str) -> float:
    return 2 if dtype == "fp32" else 7  # in 2 bytes each: a cast (3), two passes over 4 bytes (4)


def _backward(dtype: str) -> float:
    return 4 if dtype == "fp32" else 11


CROSS_ENTROPY = elementwise(
    "cross_entropy", _inputs, _cross_entropy, forward=_forward, backward=_backward, dims=VOCABULARY
)
