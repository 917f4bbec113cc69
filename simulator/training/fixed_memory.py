"""Memory of a device that its activations do not change, and the peak with activations beside it."""

from __future__ import annotations

import numpy as np

from core.records import record
from simulator.plan import taken


@record()
class FixedMemory:
    """Bytes beside activations on each class of stage; arrays of shape (classes, plans).

    ``constant`` are all of them at the peak of the passes, ``workspace`` the part of these that passes take.
    ``copied`` are those that the optimizer's step copies, ``present`` the classes of stage that a plan has,
    ``learned`` is the measured over the predicted peak at the user's site.
    """

    constant: np.ndarray
    workspace: np.ndarray
    copied: np.ndarray | None
    present: np.ndarray
    learned: float = 1.0

    def take(self, rows: np.ndarray) -> FixedMemory:
        """The memory of some of the plans."""
        copied = None if self.copied is None else taken(self.copied, rows)
        constant, workspace = taken(self.constant, rows), taken(self.workspace, rows)
        return FixedMemory(constant, workspace, copied, taken(self.present, rows), self.learned)

    def updating(self, activations: np.ndarray, capacity: float) -> np.ndarray:
        """Bytes that the optimizer's step takes beside activations and all else, shape (..., classes, plans).

        ``activations`` count the loss.
        The optimizer copies gradients after activations are freed. The caching allocator keeps their memory
        reserved and allocates more, until the device is full; then it returns the cached blocks.
        """
        if self.copied is None:
            return np.zeros(activations.shape)
        room = capacity - (self.constant + activations)
        return self._updating(self.copied, activations, room)

    def _updating(self, copied: np.ndarray, activations: np.ndarray, room: np.ndarray) -> np.ndarray:
        """The same where ``room`` is left, which the result overwrites."""
        freed = activations + self.workspace
        least = np.subtract(copied, freed, out=freed)
        np.maximum(least, 0.0, out=least)
        return np.clip(room, least, copied, out=room)

    def peak_with(
        self, activations: np.ndarray, capacity: float, graphs: np.ndarray | float = 0
    ) -> np.ndarray:
        """Bytes of the fullest device with activations, shape (..., plans).

        Args:
            activations: bytes as allocated, with the loss, shape (..., classes, plans).
            capacity: memory of a device, B.
            graphs: bytes of CUDA graphs beside those of ``constant``, shape (..., classes, plans).
        """
        occupied = self.constant + graphs + activations
        if self.copied is not None:
            occupied += self._updating(self.copied, activations, np.subtract(capacity, occupied))
        return self.learned * np.max(occupied, axis=-2, where=self.present, initial=0.0)
