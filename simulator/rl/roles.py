"""Roles of a step of post-training: who trains, who generates, who scores."""

from typing import Any, Literal

from pydantic import Field

from core.loading import Strict
from simulator.scenario import Reference


class TrainRole(Strict):
    """The trainer of the policy; its devices also run the forward passes over answers."""

    framework: Reference | None = Field(
        None, description="training framework: catalogue name, path or mapping; default: the system's"
    )
    plan: dict[str, Any] = Field(default_factory=dict, description="how the policy is laid on its devices")
    packing: Literal["pack", "balance", "pad", "none"] | None = Field(
        None, description="how answers lie in rows, as in a training workload; default: the system's"
    )


class Roles(Strict):
    """Who does what."""

    train: TrainRole = Field(default_factory=lambda: TrainRole.model_validate({}), description="the trainer")
    generate: dict[str, Any] = Field(
        default_factory=dict,
        description="a replica of the rollout engine, with the keys of a serving deployment; replicas fill "
        "the role's devices",
    )
    reference: Reference | None = Field(None, description="model of the reference; default: the policy's")
    reward: Reference | None = Field(
        None, description="reward model, of algorithms that have one; default: the policy's"
    )
    critic: Reference | None = Field(
        None, description="value model, of algorithms that have one; default: the policy's"
    )
