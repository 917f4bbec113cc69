"""Saves that another plan can load: shards are joined and cut again where degrees differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
from pydantic import Field

from simulator.checkpoints.mechanism import Mechanism, Save, StepWindow
from simulator.checkpoints.places import StoragePlace

if TYPE_CHECKING:
    from simulator.checkpoints.rates import SaveRates
    from simulator.checkpoints.state import SavedState


class Universal(Mechanism):
    """Universal Checkpointing (arXiv 2406.18820): saved in shards, converted once before a load."""

    HELP: ClassVar[str] = "saves in shards; a load with other degrees converts them first"
    PLACES: ClassVar[tuple[StoragePlace, ...]] = ("host", "remote")

    mechanism: Literal["universal"] = "universal"
    converts: bool = Field(False, description="whether loads come with other degrees and convert first")

    def save(self, state: SavedState, rates: SaveRates, window: StepWindow) -> Save:
        """One save of each plan: as an asynchronous one; conversion reads and writes every byte once."""
        copied = self.copy_s(state, rates)
        bare = self.save_after(state, rates, copied, copied)
        if not self.converts:
            return bare
        extra = resharding_s(state.total, rates)
        loads = dict(bare.load_s)
        if "remote" in loads:
            loads["remote"] = loads["remote"] + extra
        return Save(
            bare.stall_s, bare.safe_s, loads, bare.least_period_s, bare.host_bytes, bare.written_bytes
        )


def resharding_s(total: np.ndarray, rates: SaveRates) -> np.ndarray:
    """Time to read all bytes from the shared file system and to write them in their new shards."""
    nodes = rates.nodes
    read = np.maximum(total / rates.read, total / nodes / rates.client_read)
    return read + np.maximum(total / rates.write, total / nodes / rates.client_write)
