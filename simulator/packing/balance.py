"""Rows filled as by ``pack``, and dealt so that replicas and micro batches cost the same."""

from __future__ import annotations

import numpy as np

from simulator.packing.base import Array, Rows, grouped
from simulator.packing.pack import Packed


class Balanced(Packed):
    """Rows dealt to replicas, from the most to the least costly, there and back.

    The cost of a row grows with the sum of its squared lengths, which differs by documents though rows have
    equal tokens (Lin et al. 2025, Understanding stragglers in large model training using what-if analysis,
    section 5.3, redistributes sequences by this sum).
    """

    def micro_batches(self, rows: Rows, weights: Array, replicas: int, micro_batch: int) -> Rows:
        """See `Packing.micro_batches`."""
        draws, count = weights.shape
        order = np.argsort(-weights, axis=1, kind="stable")
        bins = count // micro_batch
        dealt = order.reshape(draws, micro_batch, bins)
        dealt[:, 1::2] = dealt[:, 1::2, ::-1]
        # Micro batches in turn to replicas, there and back: (draws, micro batches, replicas, rows).
        dealt = dealt.transpose(0, 2, 1).reshape(draws, bins // replicas, replicas, micro_batch).copy()
        dealt[:, 1::2] = dealt[:, 1::2, ::-1]
        taken = dealt.transpose(0, 2, 1, 3).reshape(draws, count)
        return grouped(rows[np.arange(draws)[:, np.newaxis], taken], replicas, micro_batch)
