"""Configurations of the closed loop: a small GPT in three sizes per kind of device.

The model is GPT-2's: pre-norm blocks with biases, learned positions, an untied output layer. Parameters,
gradients and AdamW's moments have the dtype of the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.errors import InputError

Parallelism = Literal["single", "ddp", "fsdp", "pipeline"]


@dataclass(frozen=True)
class LiveConfig:
    """A small GPT and its training configuration on this machine's devices.

    Attributes:
        device: "cpu", "cuda" or, in one process, "cuda:N".
        devices: processes; one each on GPUs.
        parallelism: "single" for one process; "ddp" and "fsdp" give each process its own sequences,
            "pipeline" gives each as many layers and runs one forward, one backward in turn.
        dtype: "fp32" or "bf16".
        micro_batch: sequences of one forward pass, of each process.
        micro_batches: forward passes of one step (gradients add up; the pipeline fills with them).
        threads: threads of a process on a CPU; 0 shares the cores out.
    """

    device: str = "cpu"
    devices: int = 1
    parallelism: Parallelism = "single"
    layers: int = 4
    hidden: int = 256
    heads: int = 4
    sequence: int = 256
    vocabulary: int = 8192
    micro_batch: int = 4
    micro_batches: int = 1
    dtype: str = "fp32"
    threads: int = 0

    def __post_init__(self) -> None:
        problem = ""
        if self.hidden % self.heads:
            problem = f"hidden {self.hidden} does not divide into {self.heads} heads"
        elif (self.parallelism == "single") != (self.devices == 1):
            problem = f"parallelism {self.parallelism!r} does not go with {self.devices} devices"
        elif self.parallelism == "pipeline" and self.layers % self.devices:
            problem = f"{self.layers} layers do not divide into {self.devices} stages"
        elif self.parallelism == "pipeline" and self.micro_batches < self.devices:
            problem = f"a pipeline of {self.devices} needs at least as many micro-batches"
        if problem:
            raise InputError(problem)

    @property
    def tokens_per_step(self) -> int:
        """Tokens that all processes together train on in a step."""
        replicas = 1 if self.parallelism == "pipeline" else self.devices
        return replicas * self.micro_batches * self.micro_batch * self.sequence

    def parameters(self) -> int:
        """Parameters of the whole model, biases and norms included."""
        block = 12 * self.hidden**2 + 13 * self.hidden
        ends = (2 * self.vocabulary + self.sequence + 2) * self.hidden
        return self.layers * block + ends


SIZES: dict[str, dict[str, LiveConfig]] = {
    "cpu": {
        "small": LiveConfig(layers=2, hidden=128, heads=2, sequence=128, vocabulary=2048),
        "medium": LiveConfig(layers=4, hidden=256, heads=4, sequence=256, vocabulary=4096),
        "large": LiveConfig(layers=6, hidden=512, heads=8, sequence=256, vocabulary=8192),
    },
    "cuda": {
        "small": LiveConfig(
            "cuda", layers=12, hidden=768, heads=12, sequence=1024, vocabulary=50304, dtype="bf16"
        ),
        "medium": LiveConfig(
            "cuda", layers=24, hidden=1024, heads=16, sequence=1024, vocabulary=50304, dtype="bf16"
        ),
        "large": LiveConfig(
            "cuda", layers=24, hidden=2048, heads=16, sequence=2048, vocabulary=50304, dtype="bf16"
        ),
    },
}
"""Three sizes of model for each kind of device; a step takes well under a second."""
