"""Roles of a step of post-training: who trains, who generates, who scores."""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from core.loading import Strict
from core.quantities import Count, Positive
from simulator.scenario import Reference

Array = NDArray[np.float64]


class TrainRole(Strict):
    """The trainer of the policy; its devices also run the forward passes over answers."""

    framework: Reference | None = Field(
        None, description="training framework: catalogue name, path or mapping; default: the system's"
    )
    plan: dict[str, Any] = Field(default_factory=dict, description="how the policy is laid on its devices")
    scoring_micro_batch: Count | None = Field(
        None, description="rows of a forward pass over answers; default: the plan's micro batch"
    )
    offload: bool | None = Field(
        None, description="whether its state leaves shared devices for rollouts; default: the system's"
    )
    packing: Literal["pack", "balance", "pad", "none"] | None = Field(
        None, description="how answers lie in rows, as in a training workload; default: the system's"
    )


class Environments(Strict):
    """Tools, sandboxes or simulators on the CPUs of the job's nodes, which answers call in turn."""

    seconds: Positive = Field(description="of a call, s, on a free core")
    calls: Positive = Field(1.0, description="mean calls of an answer")
    sigma: float = Field(
        0.0, ge=0, le=3, description="standard deviation of the logarithm of a call's seconds; 0: all alike"
    )
    cores: Positive = Field(1.0, description="CPU cores that a call holds")
    node_cores: Count = Field(description="CPU cores of a node that serve calls")

    @property
    def waits_s(self) -> float:
        """Seconds that an answer waits for its calls."""
        return self.calls * self.seconds

    def added_s(self, seconds: float, outputs: Array) -> float:
        """Seconds that calls add to the last of some answers, each of which ends with its length and waits.

        Args:
            seconds: of the rollouts without calls.
            outputs: tokens of each answer, in bursts; shape (bursts, answers).
        """
        if not self.sigma:
            return self.waits_s
        # A sum of as many calls has the spread of their mean.
        spread = self.sigma / max(self.calls, 1.0) ** 0.5
        drawn = np.random.default_rng(0).lognormal(-0.5 * spread**2, spread, outputs.shape)
        ends = seconds * outputs / outputs.max(axis=1, keepdims=True) + self.waits_s * drawn
        return float(ends.max(axis=1).mean()) - seconds

    def busy_s(self, answers: float, nodes: int) -> float:
        """Seconds in which all cores of some nodes serve the calls of some answers."""
        return answers * self.waits_s * self.cores / (nodes * self.node_cores)


class Roles(Strict):
    """Who does what."""

    train: TrainRole = Field(default_factory=lambda: TrainRole.model_validate({}), description="the trainer")
    generate: dict[str, Any] = Field(
        default_factory=dict,
        description="a replica of the rollout engine, with the keys of a serving deployment; replicas fill "
        "the role's devices",
    )
    environment: Environments | None = Field(None, description="what answers call; default: nothing")
    reference: Reference | None = Field(None, description="model of the reference; default: the policy's")
    reward: Reference | None = Field(
        None, description="reward model, of algorithms that have one; default: the policy's"
    )
    critic: Reference | None = Field(
        None, description="value model, of algorithms that have one; default: the policy's"
    )
