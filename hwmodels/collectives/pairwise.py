"""All-to-all in pairs: each rank sends one n-th of its buffer to every other, all links at once.

Traffic inside the domain and traffic that leaves it use different links at the same time; the slower one
decides. The domain's NICs carry the outgoing traffic of all its members.
"""

from __future__ import annotations

import numpy as np

from hwmodels.collectives.call import CollectiveCalls, Floats

OPERATIONS = ("all_to_all",)


def seconds(call: CollectiveCalls) -> Floats:
    """Return the time by each protocol, shape (protocols, calls)."""
    inside, network = call.inside, call.network
    part, peers = call.bytes_ / call.size, call.local - 1
    inside_s = (
        inside.start_s + peers * inside.step_s + (peers + inside.own_copy) * part * inside.seconds_per_byte
    )
    if network is None:
        return inside_s
    far_peers = call.size - call.local
    network_s = network.start_s + network.step_s + far_peers * inside.step_s
    network_s = network_s + call.local * far_peers * part * network.seconds_per_byte
    return np.maximum(inside_s, network_s)


def latency(call: CollectiveCalls) -> Floats:
    """Return the latency beyond the calibrated one, shape (calls,): one hop, since pairs do not wait."""
    lanes = call.network or call.inside
    return lanes.latency_s + (call.leaves > 1) * lanes.crossing_s
