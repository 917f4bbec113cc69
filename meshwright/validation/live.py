"""The closed loop: train a small GPT here, and hold each operator's time against its prediction.

``train`` trains and measures; ``compare`` sets a prediction beside it. The model is GPT-2's: pre-norm
blocks with biases, learned positions, an untied output layer. Parameters, gradients and AdamW's moments
have the dtype of the configuration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hwmodels.errors import InputError
from profiles.measure.machine import find, require_torch
from profiles.measure.processes import run_ranks

Parallelism = Literal["single", "ddp", "fsdp", "pipeline"]

WARM_UP_STEPS = 3


@dataclass(frozen=True)
class LiveConfig:
    """A small GPT and how it is trained on the devices of this machine.

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


@dataclass(frozen=True)
class MeasuredSteps:
    """What training here did: times as rank 0 saw them, operators as the busiest rank did.

    Attributes:
        config: what was trained.
        device: the device's name.
        seconds: wall time of each timed step.
        operators: seconds a step, by kind of operator, from torch.profiler over steps of their own: on a
            GPU the time of its kernels, on a CPU the time inside the operator. Kinds: gemm, attention,
            norm, activation, embedding, cross_entropy, elementwise, copy, optimizer, collective, other.
        profiled_seconds: wall time of a step under the profiler, which slows small operators down.
        peak_memory_bytes: peak of the allocator on a GPU, else 0.
        loss: of the last step; finite, or the training was no training.
    """

    config: LiveConfig
    device: str
    seconds: tuple[float, ...]
    operators: dict[str, float]
    profiled_seconds: float
    peak_memory_bytes: int
    loss: float

    @property
    def step_seconds(self) -> float:
        """The median step."""
        return float(np.median(self.seconds))

    @property
    def spread(self) -> float:
        """Interquartile range of the steps over their median."""
        low, high = np.percentile(self.seconds, (25, 75))
        return float((high - low) / self.step_seconds)


@dataclass(frozen=True)
class PredictedStep:
    """What a prediction says of the same step.

    Attributes:
        seconds: its time.
        operators: seconds by kind of operator.
        band: half-width of the band that the calibration's errors leave, as a share of the step.
    """

    seconds: float
    operators: dict[str, float]
    band: float = 0.0


@dataclass(frozen=True)
class Gap:
    """One line of the comparison; ``share_of_step`` is (predicted - measured) over the measured step."""

    operator: str
    measured: float
    predicted: float
    share_of_step: float

    @property
    def relative(self) -> float:
        """(predicted - measured) / measured; infinite where only the prediction has the operator."""
        if self.measured == 0:
            return float("inf") if self.predicted else 0.0
        return (self.predicted - self.measured) / self.measured


def train(config: LiveConfig, steps: int = 10) -> MeasuredSteps:
    """Train for some steps, after a warm-up, and measure them.

    Args:
        config: the model and how it is laid out.
        steps: timed steps, at least one; profiled ones come on top.

    Raises:
        InputError: no such device, or fewer devices than the configuration asks for.
        MeshwrightError: a process failed.
    """
    if steps < 1:
        raise InputError(f"at least one step is needed, found {steps}", "--steps")
    found = find(config.device)
    found.checked_dtypes((config.dtype,))
    if config.devices == 1:
        return _train_here(config, steps)
    return run_ranks(_train_here, config.devices, found.kind, config, steps)


def _train_here(config: LiveConfig, steps: int) -> MeasuredSteps:
    from meshwright.validation.live_training import run

    torch = require_torch()
    before = torch.get_num_threads()
    if config.device == "cpu":
        torch.set_num_threads(config.threads or max(1, before // config.devices))
    try:
        return run(config, steps, WARM_UP_STEPS)
    finally:
        torch.set_num_threads(before)


def compare(measured: MeasuredSteps, predicted: PredictedStep) -> list[Gap]:
    """Set a prediction beside a measurement: the step first, then the operators by size of their gap.

    The kind "overhead" is what the named operators leave of the step: launches, Python, waiting, and what
    the profiler shows under names of no kind. The gaps of the operators add up to that of the step.
    """
    left, right = (
        {name: seconds for name, seconds in side.operators.items() if name != "other"}
        for side in (measured, predicted)
    )
    left["overhead"] = measured.step_seconds - sum(left.values())
    right["overhead"] = predicted.seconds - sum(right.values())

    def gap(name: str, here: float, there: float) -> Gap:
        return Gap(name, here, there, (there - here) / measured.step_seconds)

    gaps = [gap(name, left.get(name, 0.0), right.get(name, 0.0)) for name in {*left, *right}]
    gaps.sort(key=lambda line: (-abs(line.share_of_step), line.operator))
    return [gap("step", measured.step_seconds, predicted.seconds), *gaps]
