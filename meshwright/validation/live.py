"""The closed loop: train a small GPT here, and compare the time of every operator with its prediction.

``train`` trains and measures; ``compare`` sets a prediction beside it.
"""

from __future__ import annotations

from dataclasses import dataclass

from core.errors import InputError
from meshwright.validation.live_config import LiveConfig
from meshwright.validation.live_training import MeasuredSteps, run
from profiles.measure.machine import find, require_torch
from profiles.measure.processes import run_ranks

WARM_UP_STEPS = 3


@dataclass(frozen=True)
class PredictedStep:
    """Prediction of the same step.

    Attributes:
        seconds: its time.
        operators: seconds by kind of operator.
        band: half-width of the band due to calibration errors, as a share of the step.
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
    """Train for a number of steps after a warm-up, and measure them.

    Args:
        config: the model and how it is laid out.
        steps: timed steps, at least one; profiled ones come on top.

    Raises:
        InputError: no such device, or fewer devices than the configuration asks for.
        MeshwrightError: a process failed.
    """
    if steps < 1:
        raise InputError(f"at least one step is needed, found {steps}", "--steps")
    device = find(config.device)
    device.checked_dtypes((config.dtype,))
    if config.devices == 1:
        return _train_here(config, steps)
    return run_ranks(_train_here, config.devices, device.kind, config, steps)


def _train_here(config: LiveConfig, steps: int) -> MeasuredSteps:
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

    The kind "overhead" is the step minus the named operators: launches, Python, waiting, and unknown names of
    the profiler. Operators are measured in profiled steps; where these are longer than the step itself,
    operators are scaled to it. The gaps of the operators add up to that of the
    step.
    """
    left, right = (
        {name: seconds for name, seconds in side.operators.items() if name != "other"}
        for side in (measured, predicted)
    )
    if (total := sum(left.values())) > measured.step_seconds:
        left = {name: seconds * measured.step_seconds / total for name, seconds in left.items()}
    left["overhead"] = max(measured.step_seconds - sum(left.values()), 0.0)
    right["overhead"] = predicted.seconds - sum(right.values())

    def gap(name: str, here: float, there: float) -> Gap:
        return Gap(name, here, there, (there - here) / measured.step_seconds)

    gaps = [gap(name, left.get(name, 0.0), right.get(name, 0.0)) for name in {*left, *right}]
    gaps.sort(key=lambda line: (-abs(line.share_of_step), line.operator))
    return [gap("step", measured.step_seconds, predicted.seconds), *gaps]
