"""Requests of an open loop as arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from simulator.serving.workload.request import Request

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RequestColumns:
    """Requests as columns, in order of arrival.

    Attributes:
        arrival_s: shape (requests,).
        serial, prompt, output, priority, cached: as in `Request`.
        first_id, ids: where the ids of each prefix begin in ``prefixes``, and how many there are.
        prefixes: ids of all prefixes; requests with one prefix may share its ids.
    """

    arrival_s: Floats
    serial: Ints
    prompt: Ints
    output: Ints
    priority: Ints
    cached: Ints
    first_id: Ints
    ids: Ints
    prefixes: Ints

    def __len__(self) -> int:
        return len(self.serial)

    def take(self, rows: Ints | slice | NDArray[np.bool_]) -> RequestColumns:
        """Some of the requests."""
        columns = (getattr(self, field.name)[rows] for field in fields(self)[:-1])
        return RequestColumns(*columns, prefixes=self.prefixes)

    def unpacked(self) -> Iterator[Request]:
        """The requests; replicas that kernels know read no more of them."""
        columns = (column.tolist() for column in (self.serial, self.arrival_s, self.prompt, self.output))
        others = (column.tolist() for column in (self.priority, self.cached, self.first_id, self.ids))
        for row in zip(*columns, *others, strict=True):
            serial, arrival, prompt, output, priority, cached, first, ids = row
            prefix = tuple(self.prefixes[first : first + ids].tolist()) if ids else ()
            yield Request(serial, arrival, prompt, output, prefix, priority, -1, 0, cached)
