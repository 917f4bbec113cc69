"""Systems of post-training: their defaults and what their hosts add to a step, one YAML file each."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field

from core.loading import Catalogue
from core.quantities import Count, NotNegative, Positive
from core.sources import Sourced
from simulator.state.place import StateClass

Degree = Literal["tensor", "pipeline", "virtual_pipeline", "context", "expert"]
DEGREES: tuple[Degree, ...] = get_args(Degree)


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
    prompts_in_flight: Count | None = Field(
        None,
        description="prompts that a replica of the engine answers at once where the trainer takes them as "
        "they are done; default: as many as its KV holds",
    )
    token_s: NotNegative = Field(
        description="host time of each token of a step's prompts and answers in a pass through a host, s"
    )
    token_passes: Literal["step", "phases"] = Field(
        "step",
        description="passes of the tokens: one a step, or two at the end of rollouts (one where they run "
        "beside updates), one around each model that scores and one before the updates",
    )
    padded: bool = Field(
        False, description="tokens of a pass: answers padded to the longest, in place of their own tokens"
    )
    token_hosts: Literal["nodes", "one"] = Field(
        description="hosts that tokens pass through: those of all nodes at once, or one controller"
    )
    tensor_s: NotNegative = Field(
        description="host time to convert and hand one weight tensor to engines on devices of their own, s"
    )
    shared_tensor_s: NotNegative = Field(description="the same to an engine on shared devices, s")
    degrees: Annotated[tuple[Degree, ...], Field(strict=False)] = Field(
        description="parallel degrees above 1 that its trainer takes, beside data"
    )
    zero: Annotated[tuple[int, ...], Field(strict=False)] = Field(
        description="stages of ZeRO that its trainer shards by"
    )
    host_state: Annotated[tuple[StateClass, ...], Field(strict=False)] = Field(
        description="classes of the trainer's state that it can keep in host memory"
    )
    offload: bool = Field(
        description="whether the trainer's state leaves shared devices for rollouts; a scenario may say"
    )
    scorers_on_device: bool = Field(
        description="whether weights of the reference and the reward model stay on the trainer's devices"
    )
    engine_keeps: Literal["buffers", "workspace", "all"] = Field(
        description="what the engine keeps on shared devices while the trainer works: context, graphs and "
        "communication buffers of an engine that sleeps; DeepSpeed's inference workspace (KV, activations); "
        "all of its share"
    )
    state_bytes_s: Positive = Field(
        description="bytes of the trainer's state a second that a device moves out for rollouts and back"
    )


rl_frameworks = Catalogue("post-training framework", Path(__file__).parent, RlFramework)
