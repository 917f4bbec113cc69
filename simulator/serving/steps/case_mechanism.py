"""Interface of mechanisms that change the step times of arrays of cases."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]


class CaseBatch(NamedTuple):
    """Batches of the steps of cases, by the arguments of `StepCases.mixed_seconds`."""

    queries: ArrayLike
    """0 in steps that only decode."""
    before: ArrayLike
    sequences: ArrayLike
    keys: ArrayLike
    chunks: ArrayLike = 1.0
    ranks: ArrayLike | None = None
    verified: float = 1.0


class CaseMechanism(Protocol):
    """A mechanism with its figures for an array of cases."""

    def seconds(self, times: Callable[[Any], Array], batch: CaseBatch, cases: Any) -> Array:
        """Seconds of steps with the mechanism.

        Args:
            times: seconds without it, of `StepCases`; a mechanism may ask cases of other tables too.
            batch: the steps.
            cases: `StepCases` of the steps.
        """
        ...


class ArrayMechanism(Protocol):
    """A mechanism of joined tables, each of which may have figures of its own."""

    def on(self, which: NDArray[np.int64]) -> CaseMechanism:
        """The mechanism of cases; ``which`` is the index of each case's table."""
        ...
