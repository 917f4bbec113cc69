"""Roles of a step of post-training: who trains, who generates, who scores."""

from typing import Any, Literal

from pydantic import Field

from core.loading import Strict
from core.quantities import Count, Positive
from simulator.scenario import Reference


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
    cores: Positive = Field(1.0, description="CPU cores that a call holds")
    node_cores: Count = Field(description="CPU cores of a node that serve calls")

    @property
    def waits_s(self) -> float:
        """Seconds that an answer waits for its calls."""
        return self.calls * self.seconds

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
