"""One phase after the other: every answer comes from the newest weights."""

from __future__ import annotations

from typing import Literal

from simulator.rl.schedules.base import PHASES, Phases, RlSchedule, RlTiming


class PhasesInTurn(RlSchedule):
    """Phases in turn, on shared devices or on those of each role."""

    kind: Literal["synchronous"] = "synchronous"

    def timing(self, phases: Phases) -> RlTiming:
        """See `RlSchedule.timing`."""
        return self.timed(phases, phases.total, PHASES)
