"""Interface of length distributions."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from core.loading import Strict


class Lengths(Strict):
    """Tokens of a prompt, an output, or a document of a training set."""

    kind: Any

    @abstractmethod
    def draw(self, random: np.random.Generator, count: int) -> np.ndarray:
        """Return ``count`` lengths, whole numbers of at least one, shape (count,)."""

    @abstractmethod
    def mean(self) -> float:
        """Mean of the distribution, tokens."""

    @abstractmethod
    def longest(self) -> int:
        """Longest length that can be drawn, tokens."""


def rounded(values: np.ndarray) -> np.ndarray:
    """Lengths rounded to whole numbers of at least one."""
    return np.maximum(np.rint(values), 1).astype(np.int64)
