"""Double binary tree between domains, a chain inside: few hops, for latency-bound messages.

Two trees carry half the buffer each, up to reduce and down to spread. A domain that is an inner node of
one tree is a leaf of the other and sends its buffer twice in all; of two domains, each sends it once
(Sanders, Speck, Träff 2009; NCCL 2.4).
"""

from __future__ import annotations

import numpy as np

from hwmodels.collectives.call import CollectiveCalls, Floats

OPERATIONS = ("all_reduce",)

EFFICIENCY = 0.92
"""Share of a ring's bandwidth on equal links: a node waits for two children (NCCL, src/graph/tuning.cc)."""


def seconds(call: CollectiveCalls) -> Floats:
    """Return the time by each protocol, shape (protocols, calls); none inside one domain."""
    inside, network = call.inside, call.network
    if network is None:
        return np.empty((0, *call.bytes_.shape))
    latency = network.start_s + hops(call) * network.step_s + 2 * (call.local - 1) * inside.step_s
    # Inside, a member forwards the buffer up and down.
    inside_per_byte = np.where(call.local > 1, 2 * inside.seconds_per_byte, 0.0)
    network_per_byte = sent_by_domain(call) * network.seconds_per_byte
    return latency + call.bytes_ * np.maximum(inside_per_byte, network_per_byte) / EFFICIENCY


def sent_by_domain(call: CollectiveCalls) -> Floats:
    """Return the number of times that a domain sends the buffer through its NICs."""
    return np.where(call.domains == 2, 1.0, 2.0)


def hops(call: CollectiveCalls) -> Floats:
    """Return the hops between domains, up the tree and down again."""
    return 2 * np.ceil(np.log2(call.domains))


def latency(call: CollectiveCalls) -> Floats:
    """Return the latency beyond the calibrated one, shape (calls,)."""
    return far_latency(call) + 2 * (call.local - 1) * call.inside.latency_s


def far_latency(call: CollectiveCalls) -> Floats:
    """Return the part of ``latency`` between domains, whose uppermost hops are those between leaves."""
    if call.network is None:
        return np.zeros(call.bytes_.shape)
    crossing = 2 * np.ceil(np.log2(call.leaves))
    return hops(call) * call.network.latency_s + crossing * call.network.crossing_s
