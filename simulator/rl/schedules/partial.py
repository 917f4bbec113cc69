"""Phases in turn; answers that are not done when enough of them are go on in the next step."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from simulator.rl.schedules.base import PHASES, Phases, RlSchedule, RlTiming


class PartialRollouts(RlSchedule):
    """Over-sampling hides the drain: a step ends with its last needed answer, others are carried over.

    With ``extra`` of 1 or more a step takes what answers take on busy replicas; below, the drain shrinks in
    proportion (assumed). Carried answers keep their KV, or the engine computes it again.
    """

    name: ClassVar[str] = "partial-rollouts"
    rule: ClassVar[str] = "over-sampling hides the drain, unfinished answers go on in the next step"
    source: ClassVar[str] = "Kimi Team 2025, Kimi k1.5 (arXiv 2501.12599), section 2.6.2"
    kind: Literal["partial-rollouts"] = "partial-rollouts"
    extra: float = Field(
        0.5, gt=0, le=10, description="answers in flight beyond those of a step, as a share of them"
    )
    kv: Literal["recompute", "keep"] = Field(
        "recompute", description="KV of carried answers: computed again with the new weights, or kept"
    )

    @property
    def recomputes(self) -> bool:
        """See `RlSchedule.recomputes`."""
        return self.kv == "recompute"

    def timing(self, phases: Phases) -> RlTiming:
        """See `RlSchedule.timing`."""
        share = min(self.extra, 1.0)
        saved = share * max(phases.generation - phases.busy_generation - phases.resume, 0.0)
        return self.timed(phases, phases.total - saved, PHASES)
