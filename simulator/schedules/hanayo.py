"""Hanayo: wave-like pipelines, up and down the ranks several times without a second replica."""

from __future__ import annotations

from simulator.schedules.base import Array
from simulator.schedules.greedy import Greedy, Rules, both_preferences


class Hanayo(Greedy):
    """Two chunks per rank make one wave."""

    name = "hanayo"
    rule = "2 or more stages and an even number of chunks per rank (two per wave)"
    source = "Liu et al., Hanayo, SC23 (arXiv 2308.15762), section 3"
    returns = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """At least two stages, two chunks per wave."""
        return (p >= 2) & (m >= 1) & (v >= 2) & (v % 2 == 0)

    def rules(self, stages: int, micro_batches: int, chunks: int) -> list[Rules]:
        """At most p micro batches' activations per rank."""
        return both_preferences(chunks * stages, stages)
