"""BitPipe: bidirectional pipelines of V-shaped, interleaved placement."""

from __future__ import annotations

from simulator.schedules.base import Array
from simulator.schedules.bidirectional import Bidirectional
from simulator.schedules.greedy import Greedy, Rules, both_preferences


class BitPipe(Bidirectional, Greedy):
    """Two replicas in opposite directions, each with two chunks per rank in a V."""

    name = "bitpipe"
    rule = "even numbers of stages and micro batches, and four chunks per rank (two per direction)"
    source = "Wu et al., BitPipe, 2024 (arXiv 2410.19367), section 3"
    returns = True

    def accepts(self, p: Array, m: Array, v: Array) -> Array:
        """An even number of stages and of micro batches, two chunks per direction."""
        return (p >= 2) & (p % 2 == 0) & (m >= 2) & (m % 2 == 0) & (v == 4)

    def rules(self, stages: int, micro_batches: int, chunks: int) -> list[Rules]:
        """At most p micro batches' activations per rank."""
        return both_preferences(2 * stages, stages)
