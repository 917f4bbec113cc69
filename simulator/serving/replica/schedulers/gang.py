"""Requests of one program run together, the oldest program first."""

from __future__ import annotations

from typing import ClassVar

from simulator.serving.replica.schedulers.ordered import Ordered
from simulator.serving.replica.sequence import Sequence


class Gang(Ordered):
    """`Chunked` whose queue is in the order in which programs began.

    Later calls of a program pass the first calls of younger ones, and its parallel calls stay together.
    Single requests are in the order of arrival.
    """

    name: ClassVar[str] = "gang"
    rule: ClassVar[str] = "as chunked, calls of one program together, the oldest program first"
    source: ClassVar[str] = "Fu et al., Dynasor (Certaindex), arXiv 2412.20993 (gang scheduling)"

    def order(self, waiting: list[Sequence]) -> list[Sequence]:
        """See `Ordered.order`."""
        return sorted(waiting, key=lambda sequence: sequence.request.program)
