"""Rollouts beside updates, under a bound on the age of the weights that an answer comes from."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from core.quantities import Count
from simulator.rl.schedules.base import APART, TRAINER, Phases, RlSchedule, RlTiming
from simulator.rl.schedules.streaming import streamed_seconds


class RolloutsAhead(RlSchedule):
    """A queue of answers between the roles, which hold devices of their own.

    With a staleness of n steps, n batches are in flight: the longest answers of one batch are generated
    beside the first of the next. A step takes the slower of the trainer, busy replicas, and an nth of a whole
    batch. Between none (synchronous) and one step the time falls in proportion (assumed). Streamed prompts
    wait in a queue (`prompt_queue.py`).

    New weights reach running answers in flight: their KV is kept, or computed again (interruption). Or the
    engine takes no new answers until the running ones end, and each step has its drain.
    """

    name: ClassVar[str] = "asynchronous"
    rule: ClassVar[str] = "as many batches in flight as the staleness in steps"
    source: ClassVar[str] = "Fu et al. 2025, AReaL (arXiv 2505.24298), section 4"
    beside: ClassVar[bool] = True
    kind: Literal["asynchronous"] = "asynchronous"
    staleness: float = Field(
        1.0, ge=0, le=1000, description="steps by which the weights of an answer may be older than the newest"
    )
    running: Literal["keep", "recompute", "finish"] = Field(
        "keep",
        description="answers that run when new weights come: go on with their KV, compute it again, or "
        "finish first",
    )

    @model_validator(mode="after")
    def _apart(self) -> RolloutsAhead:
        if self.split is None:
            raise ValueError(APART)
        return self

    streamed: bool = Field(
        False, description="updates begin with the first mini batch of answers (`streaming`)"
    )

    pulled: Count = Field(1, description="mini batches that the trainer takes at once, where streamed")

    @property
    def recomputes(self) -> bool:
        """See `RlSchedule.recomputes`."""
        return self.running == "recompute" and self.staleness > 0

    @property
    def by_prompt(self) -> bool:
        """See `RlSchedule.by_prompt`."""
        return self.streamed

    def timing(self, phases: Phases) -> RlTiming:
        """See `RlSchedule.timing`."""
        ahead = max(self.staleness, 1.0)
        rollouts = max(phases.busy_generation + phases.resume, phases.generation / ahead)
        if self.running == "finish":
            rollouts = phases.generation
        trainer = phases.training + phases.host
        beside = max(rollouts, trainer) + phases.weights
        share = min(self.staleness, 1.0)
        deciding = ("generation",) if rollouts >= trainer else TRAINER
        if self.streamed:
            fresh = streamed_seconds(phases, self.pulled, self.staleness, self.running)
            share = 0.0 if phases.queue is not None else share
        else:
            fresh = phases.total
        return self.timed(phases, share * beside + (1.0 - share) * fresh, deciding)
