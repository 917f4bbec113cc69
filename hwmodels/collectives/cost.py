"""The cost of collectives as a record: time, the links that they fill, the bytes that they move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hwmodels.collectives.call import Floats


@dataclass(frozen=True, slots=True)
class Cost:
    """What collectives take and ask of links while nothing else of their ranks communicates.

    Costs are linear: ``gather + scatter`` is the cost of one after the other, ``4 * gather`` that of four,
    and ``0 + gather`` is ``gather``, so that ``sum`` works. Levels are those of the cluster, innermost
    first; the last is the network.
    """

    seconds: Floats
    """Shape (...)."""
    busy: Floats
    """Seconds for which the bytes alone fill the links of each level, shape (levels + 1, ...).

    A collective fills the outermost level that it spans, which is the one that limits it.
    """
    bytes: Floats
    """Bytes that a rank sends over each level, mean over its group, shape (levels + 1, ...)."""

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
        """Return the cost of both, one after the other; 0 costs nothing."""
        if isinstance(other, int):
            if other:
                raise TypeError("only a cost, or 0, can be added to a cost")
            return self
        return Cost(self.seconds + other.seconds, self.busy + other.busy, self.bytes + other.bytes)

    __radd__ = __add__

    def __mul__(self, times: ArrayLike) -> Cost:
        """Return the cost of so many, shape (...); 0 where a mask is false."""
        factor = np.asarray(times, np.float64)
        return Cost(self.seconds * factor, self.busy * factor, self.bytes * factor)

    __rmul__ = __mul__
    __array_ufunc__ = None  # numpy leaves ``array * cost`` to ``__rmul__``

    def __getitem__(self, index: ArrayLike) -> Cost:
        """Return the costs that an index array or a mask selects, along the first axis of (...)."""
        chosen = np.asarray(index)
        return Cost(self.seconds[chosen], self.busy[:, chosen], self.bytes[:, chosen])
