"""Saves of what changed since the last whole save."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from simulator.checkpoints.mechanism import Mechanism, Save, StepWindow
from simulator.checkpoints.places import StoragePlace

if TYPE_CHECKING:
    from simulator.checkpoints.rates import SaveRates
    from simulator.checkpoints.state import SavedState


class Incremental(Mechanism):
    """Check-N-Run (NSDI 2022): a share of the state per save, and a whole save now and then."""

    HELP: ClassVar[str] = "saves hold what changed since the last whole save"
    PLACES: ClassVar[tuple[StoragePlace, ...]] = ("host", "remote")

    mechanism: Literal["incremental"] = "incremental"
    changed: Annotated[float, Field(gt=0, le=1)] = Field(description="share of the state that a save holds")
    whole_every: Annotated[int, Field(ge=1, le=10**6)] = Field(
        10, description="saves from one whole save to the next"
    )

    def save(self, state: SavedState, rates: SaveRates, window: StepWindow) -> Save:
        """The mean save of each plan; a load reads the whole save and half of the increments."""
        share = (1 + self.changed * (self.whole_every - 1)) / self.whole_every
        copied = self.copy_s(state, rates) * share
        full_s = self.save_after(state, rates, copied, copied)
        read = 1 + self.changed * (self.whole_every - 1) / 2
        smaller = _scaled(state, share)
        part = self.save_after(smaller, rates, copied, copied)
        return Save(
            stall_s=part.stall_s,
            safe_s=part.safe_s,
            load_s={place: time * read for place, time in full_s.load_s.items()},
            least_period_s=part.least_period_s,
            host_bytes=full_s.host_bytes,
            written_bytes=part.written_bytes,
        )


def _scaled(state: SavedState, share: float) -> SavedState:
    """A share of every part of a state."""
    return type(state)(**{name: np.asarray(value) * share for name, value in vars(state).items()})
