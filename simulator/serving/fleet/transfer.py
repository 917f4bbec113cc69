"""KV transfers from prefill to decode replicas, over the cluster's links.

A prompt's KV is sent layer by layer, overlapping the next layer, or as a whole after the prompt.
Each pair of devices (rank i of one replica, rank i of the other) has its own route; routes through NICs share
those of their nodes. A replica sends and receives prompts in turn; between layers of a prompt that is still
being computed others have the link.
"""

from __future__ import annotations

from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from hwmodels.cluster import Cluster
from simulator.serving.state.route import Route

Array = NDArray[np.float64]


@overload
def arrival_s(sending_s: float, computed_s: float, layers: int, wait_s: float = ...) -> float: ...
@overload
def arrival_s(sending_s: Array, computed_s: Array, layers: int, wait_s: Array = ...) -> Array: ...
def arrival_s(
    sending_s: float | Array, computed_s: float | Array, layers: int, wait_s: float | Array = 0.0
) -> float | Array:
    """Return seconds from the end of a prompt to the arrival of its KV; numbers or arrays of one shape.

    A layer is sent when it is computed: sending begins with the first of ``layers`` equal parts of the
    prompt's computation, and the last part leaves no earlier than the prompt ends. One part (``layers`` 1)
    sends the KV as a whole, after the prompt.

    Args:
        sending_s: time on the link of the whole KV, s.
        computed_s: computation of the prompt, s.
        layers: parts that are sent on their own.
        wait_s: wait for the link from the moment at which the first part is there, s.
    """
    part = 1.0 / layers
    last, late = part * sending_s, sending_s + wait_s - (1.0 - part) * computed_s
    return max(last, late) if isinstance(last, float) and isinstance(late, float) else np.maximum(last, late)


class TransferEnd(NamedTuple):
    """A replica that sends or receives: its number, its cluster, its first rank and its devices."""

    number: int
    cluster: Cluster
    rank: int
    devices: int


class Transfers:
    """End times of KV transfers, s; a replica's link is busy for as long as the bytes of each take.

    Args:
        layers: layers of the model.
        layerwise: send each layer when it is computed.
    """

    def __init__(self, layers: int, layerwise: bool) -> None:
        self.parts = layers if layerwise else 1
        self._free_s: dict[int, float] = {}
        self._routes: dict[tuple[int, int], Route] = {}

    def route(self, source: TransferEnd, target: TransferEnd) -> Route:
        """The route between two replicas."""
        key = source.number, target.number
        if key not in self._routes:
            ranks = source.rank, source.devices, target.rank, target.devices
            self._routes[key] = Route.of(source.cluster, target.cluster, *ranks)
        return self._routes[key]

    def end(
        self, source: TransferEnd, target: TransferEnd, bytes_: float, started: float, ended: float
    ) -> float:
        """When a prompt's KV has arrived.

        Args:
            source, target: the replica that computed it, and the one that decodes.
            bytes_: size of the KV, B.
            started, ended: start and end of the prompt's computation, s.
        """
        route = self._routes.get((source.number, target.number)) or self.route(source, target)
        sending_s = bytes_ / route.bandwidth
        computed = ended - started
        earliest = ended - computed * (1.0 - 1.0 / self.parts)
        begin = max(earliest, self._free_s.get(source.number, 0.0), self._free_s.get(target.number, 0.0))
        self._free_s[source.number] = self._free_s[target.number] = begin + sending_s
        return ended + arrival_s(sending_s, computed, self.parts, begin - earliest) + route.latency_s
