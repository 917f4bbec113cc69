"""2BP: 1F1B with the backward in two stages; weight gradients run where a rank would idle."""

from __future__ import annotations

from simulator.schedules.base import Array
from simulator.schedules.greedy import Greedy, Rules


class TwoStageBackward(Greedy):
    """Weight gradients run as late as possible, so activations of all micro batches may be held."""

    name = "2bp"
    source = "Rae et al., 2BP: 2-Stage Backpropagation, 2024 (arXiv 2405.18047), section 3"
    splits_backward = True

    def resident(self, p: Array, m: Array, v: Array, rank: Array) -> Array:
        """Every micro batch of the step, at worst."""
        return m

    def rules(self, stages: int, micro_batches: int, chunks: int) -> list[Rules]:
        """1F1B's forwards and backwards; a weight gradient when neither can start."""
        return [
            Rules(micro_batches, split=True, patience=patience, window=stages) for patience in (0.0, 0.5, 1.0)
        ]
