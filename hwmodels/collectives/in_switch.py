"""All-reduce inside the switch (NVLS), with a double binary tree between domains (NVLS tree).

A rank sends its buffer for the switch to add up, and spreads its n-th of the sum: (1 + 1 / n) of the buffer
each way (NVIDIA, NCCL 2.17 and 2.18). Only the Simple protocol supports it.
"""

from __future__ import annotations

import numpy as np

from hwmodels.collectives import tree
from hwmodels.collectives.call import CollectiveCalls, Floats

OPERATIONS = ("all_reduce",)


def seconds(call: CollectiveCalls) -> Floats:
    """Return the time, s, shape (1, calls); infinite where no switch can reduce."""
    if call.switch is None:
        return np.empty((0, *call.bytes_.shape))
    start, network = call.switch.start_s, call.network
    slowest = (1 + 1 / call.local) * call.switch.seconds_per_byte
    if network is not None:
        start = start + network.start_s[-1] + tree.hops(call) * network.step_s[-1]
        slowest = np.maximum(slowest, tree.sent_by_domain(call) * network.seconds_per_byte[-1])
    return (start + call.bytes_ * slowest)[np.newaxis]


def latency(call: CollectiveCalls) -> Floats:
    """Return the latency beyond the calibrated one, shape (calls,): to the switch and back for each half."""
    return 2 * call.inside.latency_s + tree.far_latency(call)
