"""Rollouts beside updates, under a bound on the age of the weights that an answer comes from."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from simulator.rl.schedules.base import TRAINER, Phases, RlSchedule, RlTiming


class RolloutsAhead(RlSchedule):
    """A queue of answers between the roles, which hold devices of their own.

    With a staleness of n steps, n batches are in flight: the longest answers of one batch are generated
    beside the first of the next. A step takes the slower of the trainer, busy replicas, and an nth of a whole
    batch. Between none (synchronous) and one step the time falls in proportion (assumed).
    """

    kind: Literal["asynchronous"] = "asynchronous"
    staleness: float = Field(
        1.0, ge=0, le=1000, description="steps by which the weights of an answer may be older than the newest"
    )

    @model_validator(mode="after")
    def _apart(self) -> RolloutsAhead:
        if self.split is None:
            raise ValueError("split: needed, rollouts run beside updates")
        return self

    def timing(self, phases: Phases) -> RlTiming:
        """See `RlSchedule.timing`."""
        ahead = max(self.staleness, 1.0)
        rollouts = max(phases.busy_generation, phases.generation / ahead)
        trainer = phases.training + phases.host
        beside = max(rollouts, trainer) + phases.weights
        share = min(self.staleness, 1.0)
        deciding = ("generation",) if rollouts >= trainer else TRAINER
        return self.timed(phases, share * beside + (1.0 - share) * phases.total, deciding)
