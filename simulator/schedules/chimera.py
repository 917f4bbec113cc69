"""Chimera: two pipelines in opposite directions fill each other's bubbles."""

from __future__ import annotations

from simulator.schedules.base import Array
from simulator.schedules.bidirectional import Bidirectional
from simulator.schedules.greedy import Greedy, Rules, both_preferences


class Chimera(Bidirectional, Greedy):
    """Bidirectional 1F1B, two model replicas; units of p micro batches joined directly."""

    name = "chimera"
    rule = "even numbers of stages and micro batches, and two chunks per rank (one per direction)"
    source = "Li and Hoefler, Chimera, SC21 (arXiv 2107.06925), section 3"

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """An even number of stages and of micro batches, one chunk per direction."""
        return (p >= 2) & (p % 2 == 0) & (m >= 2) & (m % 2 == 0) & (v == 2)

    def rules(self, stages: int, micro_batches: int, chunks: int) -> list[Rules]:
        """At most p micro batches' activations per rank."""
        return both_preferences(stages, stages)
