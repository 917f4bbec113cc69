"""Schedules of post-training by kind: one file each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from simulator.rl.schedules.asynchronous import RolloutsAhead
from simulator.rl.schedules.base import Phases, RlSchedule, RlTiming, Split
from simulator.rl.schedules.one_step_off import OneStepOff
from simulator.rl.schedules.partial import PartialRollouts
from simulator.rl.schedules.repacked import TailRepacked
from simulator.rl.schedules.streaming import MiniBatchesStreamed
from simulator.rl.schedules.synchronous import PhasesInTurn

RL_SCHEDULES: tuple[type[RlSchedule], ...] = (
    PhasesInTurn,
    PartialRollouts,
    TailRepacked,
    MiniBatchesStreamed,
    OneStepOff,
    RolloutsAhead,
)

if TYPE_CHECKING:
    AnyRlSchedule = RlSchedule
else:
    AnyRlSchedule = Annotated[Union[RL_SCHEDULES], Field(discriminator="kind")]  # noqa: UP007
    """A schedule by its kind."""

__all__ = ["RL_SCHEDULES", "AnyRlSchedule", "Phases", "PhasesInTurn", "RlSchedule", "RlTiming", "Split"]
