"""Saves in the memory of other hosts: whole replicas, or parities of an erasure code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from core.loading import Strict
from simulator.checkpoints.mechanism import Mechanism, Save, StepWindow
from simulator.checkpoints.places import StoragePlace

if TYPE_CHECKING:
    from simulator.checkpoints.rates import SaveRates
    from simulator.checkpoints.state import SavedState


class Erasure(Strict):
    """Groups of ``data`` nodes with ``parity`` parities: any ``parity`` losses of a group are recovered."""

    data: Annotated[int, Field(ge=1, le=4096)]
    parity: Annotated[int, Field(ge=1, le=4096)]


class Peers(Mechanism):
    """Gemini (SOSP 2023), REFT, ByteRobust: copies beside the passes, sent while the network is idle."""

    HELP: ClassVar[str] = "saves in the memory of other hosts, as replicas or erasure code"
    PLACES: ClassVar[tuple[StoragePlace, ...]] = ("peers", "remote")

    mechanism: Literal["peers"] = "peers"
    replicas: Annotated[int, Field(ge=1, le=64)] = Field(1, description="other hosts that keep a copy")
    erasure: Erasure | None = Field(
        None, description="`data` and `parity` nodes of a code, in place of replicas"
    )
    snapshot: Literal["lazy", "blocking"] = Field(
        "lazy", description="whether copies to the host run beside the passes or stop training"
    )
    hidden: bool = Field(True, description="whether copies to other hosts use only idle network time")

    @model_validator(mode="before")
    @classmethod
    def _survives(cls, value: object) -> object:
        if isinstance(value, dict) and "survives" not in value:
            code = value.get("erasure")
            copies = code.get("parity") if isinstance(code, dict) else value.get("replicas", 1)
            if isinstance(copies, int) and copies > 0:
                return {**value, "survives": copies}
        return value

    def save(self, state: SavedState, rates: SaveRates, window: StepWindow) -> Save:
        """One save of each plan. What of the copies does not fit the step's free time stops training."""
        copied = self.copy_s(state, rates)
        factor = self.erasure.parity / self.erasure.data if self.erasure else float(self.replicas)
        sent = factor * self.node_bytes(state) / rates.nic
        stall = copied if self.snapshot == "blocking" else np.maximum(copied - window.passes_s, 0.0)
        if not self.hidden:
            stall = stall + sent
        bare = self.save_after(state, rates, stall, copied)
        safe = dict(bare.safe_s)
        for stored in self.saved_at:
            if stored.place != "host":
                safe[stored.place] = safe[stored.place] - self.write_s("peers", state, rates) + sent
        stretched = np.where(
            window.idle_network_s > 0, window.step_s / np.maximum(window.idle_network_s, 1e-12), 1.0
        )
        return Save(
            stall_s=bare.stall_s,
            safe_s=safe,
            load_s=bare.load_s,
            least_period_s=np.maximum(bare.least_period_s, sent * stretched),
            host_bytes=self.node_bytes(state) * (1 + factor),
            written_bytes={**bare.written_bytes, "peers": state.total * factor},
        )
