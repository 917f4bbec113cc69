"""Ring: every rank forwards one n-th of the buffer at a time; the best use of every link.

All-reduce goes round twice (reduce, then gather): each rank sends 2 (n - 1) / n of its buffer in 2 (n - 1)
steps; all-gather and reduce-scatter go round once. Broadcast streams the whole buffer along. A ring leaves a
domain once and enters it once, so the domain's NICs together carry the traffic of one member (Thakur,
Rabenseifner, Gropp 2005; nccl-tests doc/PERFORMANCE.md).
"""

from __future__ import annotations

import numpy as np

from hwmodels.collectives.call import CollectiveCalls, Floats

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast")


def seconds(call: CollectiveCalls) -> Floats:
    """Return the time by each protocol, shape (protocols, calls)."""
    inside, network = call.inside, call.network
    steps = _steps(call)
    part = call.bytes_ / call.size
    sent = call.bytes_ if call.operation == "broadcast" else steps * part
    inside_s = (sent + inside.own_copy * part) * inside.seconds_per_byte
    if network is None:
        return inside.start_s + steps * inside.step_s + inside_s
    far_steps = steps / call.local
    latency = network.start_s + (steps - far_steps) * inside.step_s + far_steps * network.step_s
    inside_s = np.where(call.local > 1, inside_s, 0.0)
    return latency + np.maximum(inside_s, sent * network.seconds_per_byte)


def latency(call: CollectiveCalls) -> Floats:
    """Return the latency beyond the calibrated one, s, shape (calls,); a round leaves each leaf once."""
    inside, network = call.inside, call.network
    steps = _steps(call)
    if network is None:
        return steps * inside.latency_s
    far_steps = steps / call.local
    crossing = np.where(call.leaves > 1, steps / call.size * call.leaves, 0.0)
    inside_s = (steps - far_steps) * inside.latency_s
    return inside_s + far_steps * network.latency_s + crossing * network.crossing_s


def _steps(call: CollectiveCalls) -> Floats:
    return (call.size - 1) * (2.0 if call.operation == "all_reduce" else 1.0)
