"""Faults by cause: counts of causes over an exposure, each with a rate of its own."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from core.durations import SomeTime
from core.loading import Strict
from simulator.faults.law import Law
from simulator.faults.process import (
    NOTICES,
    Component,
    Exposed,
    FaultKind,
    FaultList,
    FaultProcess,
    Notice,
    poisson_times,
)


class Exposure(Strict):
    """What was observed, and for how long."""

    devices: Annotated[int, Field(ge=1, le=2**24)]
    devices_per_node: Annotated[int, Field(ge=1, le=4096)] = 8
    duration: SomeTime

    @property
    def node_seconds(self) -> float:
        """Seconds of one node."""
        return self.devices / self.devices_per_node * self.duration

    @property
    def device_seconds(self) -> float:
        """Seconds of one device."""
        return self.devices * self.duration


class Cause(Strict):
    """A cause, and how often it was observed."""

    name: str
    component: Component
    count: Annotated[float, Field(gt=0, le=1e9)] = Field(description="faults in the exposure")
    notice: Notice = "crash"
    nodes: Annotated[int, Field(ge=0, le=2**20)] = Field(1, description="nodes that one takes away")
    repair: Law = Field(Law.of(86400.0), validate_default=True)
    source: str = Field(description="row of the published table, and what of this entry is assumed")

    PER_DEVICE: ClassVar[frozenset[str]] = frozenset({"gpu", "hbm", "nvlink"})
    """Components that every device has; of the others every node has its share."""


class SizeTerm(Strict):
    """A rate per node that grows with the job, as one system measured it.

    The factor is 1 at ``reference_devices`` and grows with a power of the size such that the job of
    ``devices`` has the measured time between faults; beyond that job it stays.
    """

    reference_devices: Annotated[int, Field(ge=1, le=2**24)]
    devices: Annotated[int, Field(ge=2, le=2**24)]
    mtbf: SomeTime
    source: str

    @model_validator(mode="after")
    def _apart(self) -> SizeTerm:
        if self.devices <= self.reference_devices:
            raise ValueError(f"devices: must exceed the reference of {self.reference_devices}")
        return self


class Components(FaultProcess):
    """A Poisson process of each cause, and a term for the size of the job where it was measured."""

    HELP: ClassVar[str] = "rates by cause, from counts over an exposure"

    kind: Literal["components"] = "components"
    exposure: Exposure = Field(description="`devices`, `devices_per_node` and `duration` of the counts")
    causes: Annotated[list[Cause], Field(min_length=1)] = Field(
        description="`name`, `component`, `count`, `notice`, `nodes`, `repair`, `source`"
    )
    size: SizeTerm | None = Field(None, description="how the rate of a node grows with the job")

    @property
    def memoryless(self) -> bool:
        """Whether no cause is silent."""
        return all(cause.notice != "silent" for cause in self.causes)

    def rates(self, job: Exposed) -> np.ndarray:
        """Faults per second by cause."""
        seen = self.exposure
        per_second = [
            cause.count * job.devices / seen.device_seconds
            if cause.component in Cause.PER_DEVICE
            else cause.count * job.nodes / seen.node_seconds
            for cause in self.causes
        ]
        return np.array(per_second) * self.factor(job)

    def factor(self, job: Exposed) -> float:
        """The size term: the rate of a node in this job over that in a job of the reference's size."""
        if self.size is None or job.devices <= self.size.reference_devices:
            return 1.0
        measured = min(job.devices, self.size.devices)
        return (measured / self.size.reference_devices) ** self._exponent

    @cached_property
    def _exponent(self) -> float:
        if self.size is None:
            return 0.0
        width = self.exposure.devices_per_node
        linear = self.model_copy(update={"size": None}).rate(Exposed(self.size.devices // width, width))
        return float(
            np.log(1 / (self.size.mtbf * linear)) / np.log(self.size.devices / self.size.reference_devices)
        )

    def rate(self, job: Exposed) -> float:
        """Faults of a job per second."""
        return float(self.rates(job).sum())

    def loss_rate(self, job: Exposed) -> tuple[float, float]:
        """Nodes lost per second, and the mean seconds until a lost node is back."""
        lost = self.rates(job) * [cause.nodes for cause in self.causes]
        lost_s = float(lost.sum())
        weighed = float((lost * [cause.repair.mean for cause in self.causes]).sum())
        return lost_s, weighed / lost_s if lost_s else 0.0

    def kinds(self, job: Exposed) -> list[FaultKind]:
        """One kind for each cause."""
        rates = self.rates(job)
        return [
            FaultKind(float(rate), cause.notice, cause.nodes)
            for rate, cause in zip(rates, self.causes, strict=True)
        ]

    def draw(self, rng: np.random.Generator, job: Exposed, horizon_s: float) -> FaultList:
        """Faults of a job before ``horizon_s``: times of all causes, then the cause of each."""
        rates = self.rates(job)
        time = poisson_times(rng, rates.sum(), horizon_s)
        cause = rng.choice(len(rates), len(time), p=rates / rates.sum())
        repair = np.zeros(len(time))
        for number, each in enumerate(self.causes):
            repair[cause == number] = each.repair.draw(rng, int((cause == number).sum()))
        nodes, notice = (
            np.array([value(each) for each in self.causes])[cause]
            for value in (lambda each: each.nodes, lambda each: NOTICES.index(each.notice))
        )
        return FaultList(time, nodes, repair, notice, cause, tuple(each.name for each in self.causes))
