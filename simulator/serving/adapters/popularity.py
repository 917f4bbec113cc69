"""Adapters of requests: how often each is drawn, and how many different ones a batch holds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simulator.serving.question.adapters import Adapters, Popular
from simulator.serving.workload.request import Request

Array = NDArray[np.float64]


def shares(adapters: Adapters) -> Array:
    """Probability of each adapter; empty where each request has its own."""
    popularity = adapters.popularity
    if popularity == "distinct":
        return np.zeros(0)
    weights = np.ones(adapters.count)
    if popularity == "identical":
        weights = np.ones(1)
    elif isinstance(popularity, Popular):
        ranks = np.arange(1.0, adapters.count + 1.0)
        weights = np.array(popularity.shares) if popularity.zipf is None else ranks**-popularity.zipf
    return weights / weights.sum()


def mean_distinct(adapters: Adapters, most_sequences: int) -> Array:
    """Mean number of different adapters among 0, 1, ... ``most_sequences`` sequences drawn independently."""
    drawn = shares(adapters)
    if not len(drawn):
        return np.minimum(np.arange(most_sequences + 1.0), adapters.count)
    absent, distinct = np.ones(len(drawn)), np.zeros(most_sequences + 1)
    for sequences in range(1, most_sequences + 1):
        absent *= 1.0 - drawn
        distinct[sequences] = len(drawn) - absent.sum()
    return distinct


class AdapterDraws:
    """Adapters of the requests of a run; the requests of a program share theirs.

    Args:
        adapters: count and popularity.
        seed: of the draws.
    """

    def __init__(self, adapters: Adapters, seed: list[int]) -> None:
        self._shares, self._count = np.cumsum(shares(adapters)), adapters.count
        self._random = np.random.default_rng(seed)
        self._programs: dict[int, int] = {}
        self._next = 0

    def assign(self, request: Request) -> Request:
        """The request with its adapter."""
        if request.program < 0:
            return request._replace(adapter=self._draw())
        if request.program not in self._programs:
            self._programs[request.program] = self._draw()
        return request._replace(adapter=self._programs[request.program])

    def _draw(self) -> int:
        if not len(self._shares):
            self._next += 1
            return (self._next - 1) % self._count
        return min(int(np.searchsorted(self._shares, self._random.random())), len(self._shares) - 1)
