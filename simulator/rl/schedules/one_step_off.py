"""Rollouts of the next step beside the updates of this one."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import model_validator

from simulator.rl.schedules.asynchronous import RolloutsAhead
from simulator.rl.schedules.base import APART, Phases, RlSchedule, RlTiming


class OneStepOff(RlSchedule):
    """Answers come from the weights before the last update; both roles meet at the end of each step."""

    name: ClassVar[str] = "one-step-off"
    rule: ClassVar[str] = "rollouts of the next step beside the updates of this one"
    source: ClassVar[str] = "Noukhovitch et al. 2024, Asynchronous RLHF (arXiv 2410.18252)"
    beside: ClassVar[bool] = True
    kind: Literal["one-step-off"] = "one-step-off"

    @model_validator(mode="after")
    def _apart(self) -> OneStepOff:
        if self.split is None:
            raise ValueError(APART)
        return self

    def timing(self, phases: Phases) -> RlTiming:
        """See `RlSchedule.timing`."""
        return RolloutsAhead.model_validate({"split": self.split}).timing(phases)
