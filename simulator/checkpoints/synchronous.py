"""Training waits until the save is in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from simulator.checkpoints.mechanism import Mechanism, Save, StepWindow

if TYPE_CHECKING:
    from simulator.checkpoints.rates import SaveRates
    from simulator.checkpoints.state import SavedState


class Synchronous(Mechanism):
    """Copies and writes in chunks: the slowest stream of the way decides (torch.save, Megatron-LM)."""

    HELP: ClassVar[str] = "training waits until the save is written"

    mechanism: Literal["synchronous"] = "synchronous"

    def save(self, state: SavedState, rates: SaveRates, window: StepWindow) -> Save:
        """One save of each plan: everything blocks, and is safe when training goes on."""
        ways = [self.write_s(stored.place, state, rates) for stored in self.saved_at]
        written_s = np.maximum.reduce([self.copy_s(state, rates), *ways])
        if self.blocking is not None:
            written_s = np.full_like(written_s, self.blocking)
        return Save(
            stall_s=written_s,
            safe_s={stored.place: written_s for stored in self.saved_at},
            load_s=self.loads(state, rates),
            least_period_s=written_s,
            host_bytes=np.zeros_like(written_s),
            written_bytes={stored.place: state.total for stored in self.saved_at},
        )
