"""Errors of the parts of a step and of memory, as fitted to published runs."""

from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field

from core.cache import read_shipped
from core.loading import Strict, build
from hwmodels.device import devices
from simulator.models import Model
from simulator.setting import Setting

ERRORS_FILE = Path(__file__).parent / "errors.yaml"

Evidence = Literal["framework and device", "device", "family", "none"]
"""What steps were measured near a setting: with its framework on its device, on its device or with its
framework on the device's family, on the family, or nowhere near."""

EVIDENCE: tuple[Evidence, ...] = ("framework and device", "device", "family", "none")


class PartErrors(Strict):
    """Errors of a step as a sum over ``simulator.uncertainty.parts.PARTS``; standard deviations, relative."""

    spread: dict[str, float] = Field(description="error of each part beyond the calibrations' own")
    residual: float = Field(gt=0, description="error of a plan that no part explains")
    scale: dict[Evidence, float] = Field(
        description="half-width of the 90 % band of a step over its standard deviation, by evidence"
    )
    ratio_scale: float = Field(gt=0, description="the same of the ratio of two plans' steps")


class PeakErrors(Strict):
    """Measured over predicted peak memory: its logarithm has Student's t distribution (``chance_within``)."""

    bias: float = Field(description="median of its logarithm")
    spread: float = Field(gt=0, description="scale of its logarithm")


class MemoryErrors(Strict):
    """Errors of peaks by kind of model and release, and what they have to allow."""

    source: str = ""
    dense: PeakErrors = Field(description="of dense models under releases of one trainer")
    experts: PeakErrors = Field(description="of models with experts, whose tokens differ by rank")
    shared: PeakErrors = Field(description="of releases that stand for several trainers (``memory.shared``)")
    required_chance: float = Field(gt=0, lt=1, description="least chance to fit of a recommended plan")


class DifferenceErrors(Strict):
    """Error of the ratio of two plans' step times, whatever the plans."""

    median: float = Field(gt=0, description="median size of the error")
    even: float = Field(gt=0, description="predicted gap below which the order is right half of the time")


class ModelErrors(Strict):
    """Errors of whole steps and peaks, fitted to published runs."""

    source: str
    parts: PartErrors
    measured: dict[str, list[str]] = Field(description="devices with measured steps, by framework")
    sources: dict[Evidence, int] = Field(
        default_factory=dict, description="sources, none tuned to, that the width rests on, by evidence"
    )
    unproven: float = Field(
        default=1.0,
        ge=1,
        description="half-width of the band of a plan beyond measured runs, over that of others",
    )
    over_promised: dict[str, float] = Field(
        default_factory=dict,
        description="steps of best measured runs over those that first choices of searches promise, by kind "
        "of model, where the figure of other sources brings a source's families nearer",
    )
    memory: MemoryErrors
    difference: DifferenceErrors


@cache
def model_errors() -> ModelErrors:
    """The shipped errors."""
    return build(ModelErrors, read_shipped(ERRORS_FILE), str(ERRORS_FILE))


def kind_of(model: Model) -> str:
    """Kind of a model whose first choices are judged together."""
    return "hybrids" if model.linear else "experts" if model.moe else "dense"


def over_promised(setting: Setting) -> float:
    """Expected over predicted step of a search's first choice; 1 where a site's own runs correct steps."""
    return 1.0 if setting.site else model_errors().over_promised.get(kind_of(setting.model), 1.0)


def evidence_of(setting: Setting, measured: Mapping[str, Collection[str]]) -> Evidence:
    """What was measured near a setting.

    Args:
        setting: of the step.
        measured: devices with measured steps, by framework.
    """
    device, framework_devices = setting.cluster.device, measured.get(setting.framework.name, ())
    if device.name in framework_devices:
        return "framework and device"
    everywhere = {name for names in measured.values() for name in names}
    if device.name in everywhere:
        return "device"
    if device.borrows:
        return "family"  # another device's kernels, at rates that nobody measured
    listed = everywhere.intersection(devices.names())
    family = {name for name in listed if devices.get(name).generation.name == device.generation.name}
    if family & set(framework_devices):
        return "device"
    return "family" if family else "none"
