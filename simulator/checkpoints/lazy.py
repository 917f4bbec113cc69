"""Copies run beside forward and backward passes; training waits for what is left before the update."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from simulator.checkpoints.mechanism import Mechanism, Save, StepWindow
from simulator.checkpoints.places import StoragePlace

if TYPE_CHECKING:
    from simulator.checkpoints.rates import SaveRates
    from simulator.checkpoints.state import SavedState


class Lazy(Mechanism):
    """DataStates-LLM (arXiv 2406.10707): state does not change between two updates."""

    HELP: ClassVar[str] = "copies run beside the passes, training waits for the rest before the update"
    PLACES: ClassVar[tuple[StoragePlace, ...]] = ("host", "remote")

    mechanism: Literal["lazy"] = "lazy"

    def save(self, state: SavedState, rates: SaveRates, window: StepWindow) -> Save:
        """One save of each plan."""
        copied = self.copy_s(state, rates)
        return self.save_after(state, rates, np.maximum(copied - window.passes_s, 0.0), copied)
