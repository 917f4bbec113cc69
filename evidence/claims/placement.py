"""Bytes between ranks that placement of experts by affinity leaves (ExFlow), and balance by copies (EPLB).

    python -m benchmarks.placement

Affinity is a synthetic law: the k-th most likely next expert gets a share in proportion to k^-s.
"""

from __future__ import annotations

import numpy as np

from evidence.claims.expert_placement import by_affinity, copies, exchange_share, in_order, synthetic_affinity
from evidence.command import command

LAYERS, RANKS = 12, 8


@command
def main() -> None:
    """Print both tables."""
    print("| experts | s | tokens that stay, by number | placed | bytes of two exchanges left |")
    print("|---|---|---|---|---|")
    for experts in (8, 16, 32, 64):
        for law in (0.0, 1.0, 1.5, 2.0):
            affinity = synthetic_affinity(LAYERS, experts, law)
            placed = by_affinity(affinity, RANKS)
            left = exchange_share(placed, RANKS)
            stay = in_order(affinity, RANKS).local
            print(f"| {experts} | {law:g} | {stay:.2f} | {placed.local:.2f} | {left:.2f} |")
    print("\n| spare slots of a rank | busiest rank over the mean, 256 experts on 32 ranks, Zipf 0.8 |")
    print("|---|---|")
    loads = np.arange(1.0, 257.0) ** -0.8
    for spare in (0, 1, 2, 4):
        print(f"| {spare} | {copies(loads.tolist(), 32, 8 + spare).imbalance:.2f} |")
