"""One phase after the other: every answer comes from the newest weights."""

from __future__ import annotations

from typing import ClassVar, Literal

from simulator.rl.schedules.base import PHASES, Phases, RlSchedule, RlTiming


class PhasesInTurn(RlSchedule):
    """Phases in turn, on shared devices or on those of each role."""

    name: ClassVar[str] = "synchronous"
    rule: ClassVar[str] = "all phases in turn"
    source: ClassVar[str] = "Shao et al. 2024, DeepSeekMath (arXiv 2402.03300), algorithm 1"
    kind: Literal["synchronous"] = "synchronous"

    def timing(self, phases: Phases) -> RlTiming:
        """See `RlSchedule.timing`."""
        return self.timed(phases, phases.total, PHASES)
