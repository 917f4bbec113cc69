"""Updates begin with the first mini batch of answers: every answer comes from the newest weights."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, model_validator

from core.quantities import Count
from simulator.rl.schedules.base import APART, TRAINER, Phases, RlSchedule, RlTiming


def streamed_seconds(phases: Phases, pulled: int, staleness: float = 0.0, running: str = "keep") -> float:
    """Seconds of a step whose mini batches go to the trainer as they are done, some of them at once.

    Args:
        phases: of a step; without a queue, a pipeline of equal mini batches on policy.
        pulled: mini batches that the trainer takes at once.
        staleness: prompts that may start beyond those of a step, as a share of them.
        running: what running answers do when new weights come.
    """
    trainer, pieces = phases.training + phases.host, max(phases.batches / pulled, 1.0)
    if phases.queue is not None:
        busy = phases.busy_generation
        return phases.queue.step_seconds(trainer, phases.weights, busy, staleness, pieces, running)
    last = phases.generation + trainer / pieces
    first = trainer + phases.busy_generation / pieces
    return max(last, first) + phases.weights


class MiniBatchesStreamed(RlSchedule):
    """A pipeline of mini batches from the rollout engine to the trainer within one step.

    A prompt is done with its longest answer (`prompt_queue.py`); weights move at the end of the step. Where
    the engine has no closed form, the step is the slower role, and one mini batch of the other.
    """

    name: ClassVar[str] = "streaming"
    rule: ClassVar[str] = "mini batches go to the trainer as they are done"
    source: ClassVar[str] = "verl 1b9356ab: recipe/fully_async_policy, require_batches"
    beside: ClassVar[bool] = True
    kind: Literal["streaming"] = "streaming"

    pulled: Count = Field(1, description="mini batches that the trainer takes at once")

    @property
    def by_prompt(self) -> bool:
        """See `RlSchedule.by_prompt`."""
        return True

    @model_validator(mode="after")
    def _apart(self) -> MiniBatchesStreamed:
        if self.split is None:
            raise ValueError(APART)
        return self

    def timing(self, phases: Phases) -> RlTiming:
        """See `RlSchedule.timing`."""
        deciding = ("generation",) if phases.generation >= phases.training + phases.host else TRAINER
        return self.timed(phases, streamed_seconds(phases, self.pulled), deciding)
