"""Interface of schedules of post-training: when the roles of a step work."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

from pydantic import Field

from core.loading import Strict
from core.quantities import Count
from core.records import record
from simulator.rl.prompt_queue import PromptQueue


@record()
class Phases:
    """Seconds of the phases of one step.

    Attributes:
        generation: rollouts from the first prompt to the last token of the longest answer.
        busy_generation: the same without the drain: what one more step of answers takes on busy replicas.
        scoring: forward passes over the answers: policy, reference, reward, critic.
        update: optimizer steps.
        weights: move of the weights to the rollout engine.
        state: the trainer's state, moved out for rollouts and back, where both roles share devices.
        host: what the system's hosts add to answers.
        resume: KV of running answers computed again, where the schedule does so.
        batches: mini batches of a step.
        environment: the part of rollouts in which all cores of environments are busy.
        queue: rollouts prompt by prompt, where the trainer takes them so and the engine has a closed form.
    """

    generation: float
    busy_generation: float
    scoring: float
    update: float
    weights: float
    state: float
    host: float
    resume: float = 0.0
    batches: int = 1
    environment: float = 0.0
    queue: PromptQueue | None = None

    @property
    def training(self) -> float:
        """Seconds of the trainer's devices."""
        return self.scoring + self.update

    @property
    def total(self) -> float:
        """All phases, one after the other."""
        return self.generation + self.training + self.weights + self.state + self.host


@record()
class RlTiming:
    """Seconds of a step, the share of it in which devices of each role wait, and what decides it."""

    seconds: float
    idle: dict[str, float]
    binding: str


TRAINER = ("scoring", "update", "host")
"""Phases of the trainer's devices."""
PHASES = ("generation", *TRAINER, "weights", "state")
APART = "rollouts run beside updates: needs split, as {train: 8, generate: 8}"
"""What a schedule says that has no devices by role."""


class Split(Strict):
    """Devices by role."""

    train: Count = Field(description="devices of the trainer")
    generate: Count = Field(description="devices of the rollout engine")


class RlSchedule(Strict):
    """When the roles of a step work."""

    name: ClassVar[str]
    """The word after ``kind``."""
    rule: ClassVar[str]
    """What it does, in one line."""
    source: ClassVar[str]
    """Where it is told."""
    kind: Any
    split: Split | None = Field(None, description="devices by role; default: both on all devices, in turn")

    beside: ClassVar[bool] = False
    """Rollouts run beside updates; otherwise the roles work in turn."""

    @property
    def recomputes(self) -> bool:
        """Whether the KV of running answers is computed again in each step."""
        return False

    @property
    def by_prompt(self) -> bool:
        """Whether the trainer takes prompts as they are done."""
        return False

    @abstractmethod
    def timing(self, phases: Phases) -> RlTiming:
        """Time of a step in the steady state."""

    def timed(self, phases: Phases, seconds: float, deciding: tuple[str, ...]) -> RlTiming:
        """A step of some seconds, with the longest of the phases that may decide it."""
        binding = max(deciding, key=lambda name: getattr(phases, name))
        if binding == "generation" and phases.environment >= phases.generation:
            binding = "environment"
        busy = {"train": phases.training, "generate": phases.busy_generation + phases.resume}
        if self.split is None:
            return RlTiming(seconds, {"all": 1.0 - sum(busy.values()) / seconds}, binding)
        return RlTiming(seconds, {role: 1.0 - time / seconds for role, time in busy.items()}, binding)
