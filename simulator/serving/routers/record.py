"""What a router remembers of the prompts that it sent: an index of prefixes that no replica reports."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from simulator.serving.workload.request import Request

BLOCK = 64
"""Least tokens of an index's block (llm-d-router, approximateprefix/plugin.go: minBlockSizeTokens)."""


class SentPrefixes:
    """Blocks of the prompts sent to each replica, the least recently sent of a replica forgotten first.

    A block enters when its request is sent, before the replica has computed it, and stays when the replica
    evicts it. An index keeps as many blocks of a replica as the replica has KV blocks, though its own are
    larger (llm-d-router, approx-prefix-cache-producer).

    Args:
        span: tokens of a prefix id.
        blocks: of a replica's index.
    """

    def __init__(self, span: int, blocks: int) -> None:
        self._step = max(-(-BLOCK // span), 1)
        self.unit_tokens = self._step * span
        """Tokens of what the index finds."""
        self._room = max(blocks * BLOCK // self.unit_tokens, 1)
        self._sent: dict[int, OrderedDict[int, None]] = {}
        self._cold: OrderedDict[int, None] = OrderedDict()
        """Replicas in the order of their last prompts of which no block had been sent to any."""

    def _units(self, request: Request) -> tuple[int, ...]:
        return request.prefix[self._step - 1 :: self._step]

    def tokens(self, request: Request, replicas: Iterable[int]) -> NDArray[np.int64]:
        """Leading tokens of a prompt that were sent to each replica before."""
        units, sent = self._units(request), self._sent
        leading = [_leading(units, sent[index]) if index in sent else 0 for index in replicas]
        return np.minimum(np.array(leading) * self.unit_tokens, request.prompt)

    def note(self, request: Request, replica: int) -> None:
        """Note that a request is sent to a replica."""
        units = self._units(request)
        if not units or not any(units[0] in sent for sent in self._sent.values()):
            self._cold[replica] = None
            self._cold.move_to_end(replica)
        sent = self._sent.setdefault(replica, OrderedDict())
        for unit in units:
            sent[unit] = None
            sent.move_to_end(unit)
        while len(sent) > self._room:
            sent.popitem(last=False)

    def forget(self, replica: int) -> None:
        """Forget a replica that has lost its state."""
        self._sent.pop(replica, None)

    def cold_order(self, replicas: Iterable[int]) -> NDArray[np.int64]:
        """Ranks of replicas by their last prompt of which nothing had been sent before: 0 for the oldest or
        none."""
        places = {replica: place for place, replica in enumerate(self._cold)}
        return np.argsort(np.argsort([places.get(index, -1) for index in replicas], kind="stable"))


def _leading(units: tuple[int, ...], sent: OrderedDict[int, None]) -> int:
    """Leading units that are in an index."""
    count = 0
    for unit in units:
        if unit not in sent:
            break
        count += 1
    return count
