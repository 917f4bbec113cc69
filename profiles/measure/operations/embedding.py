"""Looking up token embeddings in a vocabulary of 32,768."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from profiles.measure.bench import Bench
from profiles.measure.operations.elementwise import elementwise

if TYPE_CHECKING:
    import torch

VOCABULARY = 32_768


def _inputs(bench: Bench, tokens: int, dims: int, dtype: str) -> Sequence[torch.Tensor]:
    return bench.integers(VOCABULARY, tokens), bench.random(VOCABULARY, dims, dtype=dtype)


def _embedding(tokens: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    from torch.nn import functional

    return functional.embedding(tokens, table)


EMBEDDING = elementwise("embedding", _inputs, _embedding, forward=2)
