"""Training waits for the copy to host memory; writing goes on beside the next steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from simulator.checkpoints.mechanism import Mechanism, Save, StepWindow
from simulator.checkpoints.places import StoragePlace

if TYPE_CHECKING:
    from simulator.checkpoints.rates import SaveRates
    from simulator.checkpoints.state import SavedState


class Asynchronous(Mechanism):
    """torch.distributed.checkpoint's async_save, torchtitan."""

    HELP: ClassVar[str] = "training waits for the copy to host memory only"
    PLACES: ClassVar[tuple[StoragePlace, ...]] = ("host", "remote")

    mechanism: Literal["asynchronous"] = "asynchronous"

    def save(self, state: SavedState, rates: SaveRates, window: StepWindow) -> Save:
        """One save of each plan."""
        copied = self.copy_s(state, rates)
        return self.save_after(state, rates, copied, copied)
