"""Time on a device's compute stream, by kernel class, and the communication that goes with it."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from hwmodels.kernels import KernelModel


@dataclass
class Work:
    """Kernels that run one after another.

    ``seconds`` maps a kernel class (gemm, attention, norm, activation, ...) to device time, shape (plans,);
    ``launches`` counts kernels, for the host time of launching them.
    """

    seconds: dict[str, np.ndarray] = field(default_factory=dict)
    launches: float | np.ndarray = 0.0

    def add(self, kind: str, seconds: np.ndarray, launches: float | np.ndarray = 1) -> None:
        """Append kernels of one class."""
        self.seconds[kind] = self.seconds.get(kind, 0.0) + np.asarray(seconds, dtype=float)
        self.launches = self.launches + launches

    def add_bytes(
        self,
        kernels: KernelModel,
        kind: str,
        moved: np.ndarray,
        launches: float | np.ndarray = 1,
        variant: str = "",
    ) -> None:
        """Append kernels of a memory-bound class that read and write so many bytes (none: nothing).

        ``variant`` is the operation, where a calibration may know it apart from others of its class.
        """
        if np.any(moved > 0):
            self.add(kind, kernels.memory_bound(moved, variant or kind), launches)

    def extend(self, other: Work, times: float | np.ndarray = 1.0) -> None:
        """Append another list of kernels, some number of times."""
        for kind, seconds in other.seconds.items():
            self.add(kind, seconds * times, 0)
        self.launches = self.launches + other.launches * times

    @property
    def device(self) -> np.ndarray:
        """Device seconds of all kernels, shape (plans,)."""
        return sum(self.seconds.values(), np.zeros(()))


@dataclass
class Transfer:
    """Communication inside a layer pass: what it takes, and what nothing can hide. Seconds, shape
    (plans,)."""

    total: np.ndarray
    exposed: np.ndarray
