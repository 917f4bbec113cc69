"""Send and receive between two ranks: pipeline neighbours, ring attention."""

from __future__ import annotations

from hwmodels.collectives.call import CollectiveCalls, Floats

OPERATIONS = ("send_receive",)


def seconds(call: CollectiveCalls) -> Floats:
    """Return the time by each protocol, shape (protocols, calls)."""
    lanes = call.network or call.inside
    return lanes.start_s + lanes.step_s + call.bytes_ * lanes.seconds_per_byte


def latency(call: CollectiveCalls) -> Floats:
    """Return the latency beyond the calibrated one, shape (calls,)."""
    lanes = call.network or call.inside
    return lanes.latency_s + (call.leaves > 1) * lanes.crossing_s
