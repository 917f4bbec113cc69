"""The cost of collectives as a record: time, busy seconds of links, bytes moved."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from core.records import record
from hwmodels.collectives.call import Floats


class Links(NamedTuple):
    """Demand of collectives on the links of each level, shape (levels + 1, ...); see ``Cost``."""

    busy: Floats
    bytes: Floats


@record()
class Cost:
    """Time and link demand of collectives whose ranks have no other communication.

    Costs are linear: ``gather + scatter`` is the cost of one after the other, ``4 * gather`` that of four,
    and ``0 + gather`` is ``gather``, so that ``sum`` works. Levels are those of the cluster, innermost
    first; the last is the network. A search reads seconds only, so links are evaluated when they are read.
    """

    seconds: Floats
    """Shape (...)."""
    links: Callable[[], Links]

    @classmethod
    def none(cls, shape: tuple[int, ...] = ()) -> Cost:
        """No communication."""
        return cls(np.zeros(shape), lambda: Links(np.zeros((1, *shape)), np.zeros((1, *shape))))

    @property
    def busy(self) -> Floats:
        """Seconds for which the bytes alone occupy the links of each level, shape (levels + 1, ...).

        A collective occupies the outermost level that it spans, which limits it.
        """
        return self.links().busy

    @property
    def bytes(self) -> Floats:
        """Bytes that a rank sends over each level, mean over its group, shape (levels + 1, ...)."""
        return self.links().bytes

    @property
    def level(self) -> NDArray[np.int64]:
        """The busiest level, shape (...); the innermost where nothing is sent."""
        return np.argmax(self.busy, axis=0)

    @property
    def share(self) -> Floats:
        """Share of the busiest level's usable bandwidth that is in use, 0 to 1, shape (...)."""
        full = self.busy.max(axis=0)
        return np.minimum(full / np.where(full > 0, self.seconds, 1.0), 1.0)

    def __add__(self, other: Cost | int) -> Cost:
        """Return the cost of both collectives in sequence; ``other`` may be 0."""
        if isinstance(other, int):
            if other:
                raise TypeError("only a cost, or 0, can be added to a cost")
            return self
        both = self.links, other.links
        return Cost(
            self.seconds + other.seconds,
            lambda: Links(
                *(mine + theirs for mine, theirs in zip(*(links() for links in both), strict=True))
            ),
        )

    __radd__ = __add__

    def __mul__(self, times: ArrayLike) -> Cost:
        """Return the cost of ``times`` collectives in sequence, shape (...); ``times`` may be a mask."""
        factor = np.asarray(times, np.float64)
        return Cost(self.seconds * factor, lambda: Links(*(part * factor for part in self.links())))

    __rmul__ = __mul__
    __array_ufunc__ = None  # numpy leaves ``array * cost`` to ``__rmul__``

    def __getitem__(self, index: ArrayLike) -> Cost:
        """Return the costs that an index array or a mask selects, along the last axis of (...)."""
        rows = np.asarray(index)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        # ``take`` is five times as fast as an index array after an ellipsis.
        seconds = np.take(self.seconds, rows, axis=-1)
        return Cost(seconds, lambda: Links(*(np.take(part, rows, axis=-1) for part in self.links())))

    def sum(self) -> Cost:
        """Return the sum along the first axis of (...)."""
        return Cost(self.seconds.sum(axis=0), lambda: Links(*(part.sum(axis=1) for part in self.links())))
