"""Max-min fair sharing of links among flows (Bertsekas and Gallager, Data Networks, section 6.5.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def fair_rates(routes: Sequence[Sequence[int]], capacity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rates at which no flow can gain without another that has no more losing.

    Progressive filling: the link with the least room per flow fixes its flows' rates, they leave with
    what they use, and so on. A link that a flow names twice is used twice.

    Args:
        routes: the links of each flow.
        capacity: bytes per second of each link, shape (links,).

    Returns:
        Bytes per second of each flow, shape (flows,); infinite for a flow that crosses no link.
    """
    lengths = [len(route) for route in routes]
    flow = np.repeat(np.arange(len(routes)), lengths)
    link = np.fromiter((index for route in routes for index in route), dtype=np.int64, count=len(flow))
    rates = np.full(len(routes), np.inf)
    room = np.asarray(capacity, dtype=np.float64).copy()
    open_flow = np.ones(len(routes), dtype=bool)
    while len(flow):
        users = np.bincount(link, minlength=len(room))
        used = users > 0
        share = np.full(len(room), np.inf)
        share[used] = np.maximum(room[used], 0.0) / users[used]
        least = share.min()
        fixed = np.unique(flow[share[link] <= least * (1 + 1e-12)])
        rates[fixed] = least
        open_flow[fixed] = False
        staying = open_flow[flow]
        room -= least * np.bincount(link[~staying], minlength=len(room))
        flow, link = flow[staying], link[staying]
    return rates
