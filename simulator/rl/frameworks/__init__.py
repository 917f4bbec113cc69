"""Systems of post-training: their defaults and what their hosts add to a step, one YAML file each."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from core.loading import Catalogue
from core.quantities import NotNegative, Positive
from core.sources import Sourced


class RlFramework(Sourced):
    """Defaults of a system, and the time of its hosts."""

    UNSOURCED: ClassVar[frozenset[str]] = frozenset({"name", "title"})

    name: str
    title: str
    train: str = Field(description="default training framework")
    engine: str = Field(description="default rollout engine")
    packing: Literal["pack", "balance", "pad", "none"] = Field(description="how it lays answers in rows")
    memory_share: float = Field(
        gt=0, le=1, description="memory of a device for the engine where it shares devices with the trainer"
    )
    transfer: str = Field(description="default way of the weights to the engine (`show weight-transfers`)")
    schedule: Literal["synchronous", "asynchronous", "one-step-off"] = Field(
        "synchronous", description="schedule that it is known for; scenarios state their own"
    )
    token_s: NotNegative = Field(description="host time of a token of a step's prompts and answers, s")
    tensor_s: NotNegative = Field(description="host time to hand one weight tensor to the engine, s")
    state_bytes_s: Positive = Field(
        description="bytes of the trainer's state a second that a device moves out for rollouts and back"
    )


rl_frameworks = Catalogue("post-training framework", Path(__file__).parent, RlFramework)
