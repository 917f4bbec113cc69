"""Send and receive between two ranks: pipeline neighbours, ring attention, chains of ranks."""

from __future__ import annotations

import numpy as np

from hwmodels.collectives.call import CollectiveCalls, Floats, LinkCosts

OPERATIONS = ("send_receive", "chain")
"""All ranks send to their neighbours at once, so the slowest pair decides; in a chain one after the other."""


def seconds(call: CollectiveCalls) -> Floats:
    """Return the time by each protocol, shape (protocols, calls); of a chain, the mean over its hops."""

    def sent(lanes: LinkCosts) -> Floats:
        return lanes.start_s + lanes.step_s + call.bytes_ * lanes.seconds_per_byte

    return _over_hops(call, sent(call.inside), sent(call.network) if call.network else None)


def latency(call: CollectiveCalls) -> Floats:
    """Return the latency beyond the calibrated one, shape (calls,)."""
    far = call.network
    across = far.latency_s + (call.leaves > 1) * far.crossing_s if far else None
    return _over_hops(call, call.inside.latency_s, across)


def _over_hops(call: CollectiveCalls, inside: Floats, across: Floats | None) -> Floats:
    """Time of a hop across the network, if there is one; of a chain, the mean over its hops."""
    if across is None:
        return inside
    if call.operation != "chain":
        return across
    leaving = (call.domains - 1) / np.maximum(call.size - 1, 1)
    return inside + leaving * (across - inside)
