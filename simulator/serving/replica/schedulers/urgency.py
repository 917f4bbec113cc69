"""The sequence whose part of its program's deadline ends first comes first."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.schedulers.ordered import Ordered
from simulator.serving.replica.sequence import Sequence


class Urgency(Ordered):
    """`Chunked` whose queue is in the order of `Request.due_s`, then of arrival.

    A program gives each of its stages a part of the time left (HexGen-Text2SQL's budget by stage). Running
    sequences are not preempted. Without deadlines all are due at no time: first come, first served.
    """

    name: ClassVar[str] = "urgency"
    rule: ClassVar[str] = "as chunked, the sequence whose stage of a program is due first comes first"
    source: ClassVar[str] = "Peng et al., HexGen-Text2SQL, arXiv 2505.05286 (local priority queue)"

    def order(self, waiting: list[Sequence]) -> list[Sequence]:
        """See `Ordered.order`."""
        return sorted(waiting, key=lambda sequence: sequence.request.due_s)
