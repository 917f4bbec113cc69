"""Max-min fair sharing of links among flows (Bertsekas and Gallager, Data Networks, section 6.5.2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from numpy.typing import NDArray

Capacity = Sequence[float] | Mapping[int, float] | NDArray


def fair_rates(routes: Sequence[Sequence[int]], demands: Sequence[float], capacity: Capacity) -> list[float]:
    """Rates at which no flow can gain unless another flow with no higher rate loses.

    Progressive filling: all rates rise together; a flow stops at its demand or when one of its links is full.
    A link that a flow names twice is used twice. Few flows meet at a time, so plain numbers are faster than
    arrays.

    Args:
        routes: the links of each flow.
        demands: most that each flow can use; infinite for no limit.
        capacity: what each link carries, in the unit of the demands.

    Returns:
        The rate of each flow.
    """
    rates = list(demands)
    room = {link: float(capacity[link]) for route in routes for link in route}
    users = dict.fromkeys(room, 0)
    for route in routes:
        for link in route:
            users[link] += 1
    rising = [flow for flow, route in enumerate(routes) if route]
    while rising:
        share = {link: max(room[link], 0.0) / count for link, count in users.items() if count}
        least = min(min(share.values()), min(demands[flow] for flow in rising))
        full = {link for link, part in share.items() if part <= least * (1 + 1e-12)}
        staying = []
        for flow in rising:
            if demands[flow] > least and full.isdisjoint(routes[flow]):
                staying.append(flow)
                continue
            rates[flow] = least
            for link in routes[flow]:
                room[link] -= least
                users[link] -= 1
        rising = staying
    return rates
