"""What every fault process yields: when, what fails, for how long, and how it is noticed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from core.durations import SomeTime
from core.loading import Strict
from simulator.faults.law import Law

Component = Literal[
    "gpu", "hbm", "nvlink", "nic", "host", "switch", "power", "storage", "software", "unknown"
]
"""What fails."""

Notice = Literal["crash", "hang", "silent"]
"""How a fault shows: a process ends; a collective never does; results are wrong."""

NOTICES: tuple[Notice, ...] = ("crash", "hang", "silent")

THOUSAND_NODE_DAYS = 1000 * 86400.0
"""Seconds of one node in a thousand node-days."""


@dataclass(frozen=True)
class Exposed:
    """The part of a cluster that a fault process acts on."""

    nodes: int
    devices_per_node: int

    @property
    def devices(self) -> int:
        """Devices of all nodes."""
        return self.nodes * self.devices_per_node


class FaultKind(NamedTuple):
    """Faults that show and cost alike: how many a second, how they show, and nodes that each takes away."""

    rate: float
    notice: Notice
    nodes: int


@dataclass(frozen=True)
class FaultList:
    """Faults in the order of time; arrays of one length.

    Attributes:
        time: seconds from the start.
        nodes: nodes that each takes away; 0 where a restart in place is enough.
        repair_s: until they are back.
        notice: index in ``NOTICES``.
        cause: index in ``causes``.
        causes: names.
    """

    time: NDArray[np.float64]
    nodes: NDArray[np.int64]
    repair_s: NDArray[np.float64]
    notice: NDArray[np.int64]
    cause: NDArray[np.int64]
    causes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.time)

    @classmethod
    def merged(cls, parts: Sequence[FaultList]) -> FaultList:
        """Several lists as one, sorted by time; equal times keep the order of the parts."""
        causes = tuple(name for part in parts for name in part.causes)
        starts = np.cumsum([0, *(len(part.causes) for part in parts)])
        columns = [
            np.concatenate([getattr(part, name) for part in parts] or [np.zeros(0)])
            for name in ("time", "nodes", "repair_s", "notice")
        ]
        cause = np.concatenate(
            [part.cause + start for part, start in zip(parts, starts, strict=False)] or [np.zeros(0)]
        )
        order = np.argsort(columns[0], kind="stable")
        time, nodes, repair, notice = (column[order] for column in columns)
        return cls(time, nodes.astype(int), repair, notice.astype(int), cause[order].astype(int), causes)


class FaultProcess(Strict):
    """Base of fault processes. ``rate`` and ``draw`` act on the nodes of one job.

    Attributes:
        HELP: one line for `meshwright show faults`.
    """

    HELP: ClassVar[str] = ""
    repeats: ClassVar[bool] = True
    """Whether faults go on beyond any horizon; those of a trace end with it."""

    @property
    @abstractmethod
    def memoryless(self) -> bool:
        """Whether times between faults are exponential, as closed forms assume."""

    @abstractmethod
    def rate(self, job: Exposed) -> float:
        """Faults of a job per second, in the mean."""

    @abstractmethod
    def kinds(self, job: Exposed) -> list[FaultKind]:
        """Kinds of faults with their rates; their sum is ``rate``."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, job: Exposed, horizon_s: float) -> FaultList:
        """Faults of a job before ``horizon_s``; the same generator state gives the same faults."""

    def loss_rate(self, job: Exposed) -> tuple[float, float]:
        """Nodes lost per second, and the mean seconds until a lost node is back."""
        return 0.0, 0.0


class SingleCause(FaultProcess):
    """Base of processes with one cause."""

    name: str = Field("", description="name of the cause; by default of the component")
    component: Component = Field("unknown", description="what fails")
    notice: Notice = Field("crash", description="how it shows: crash, hang or silent")
    nodes: Annotated[int, Field(ge=0, le=2**20)] = Field(
        1, description="nodes that one fault takes away; 0 where a restart in place is enough"
    )
    repair: Law = Field(
        Law.of(86400.0),
        description="until lost nodes are back: seconds, `6 h`, or a law",
        validate_default=True,
    )

    def listed(self, rng: np.random.Generator, time: NDArray[np.float64]) -> FaultList:
        """Faults of this cause at given times."""
        count = len(time)
        return FaultList(
            time,
            np.full(count, self.nodes),
            self.repair.draw(rng, count),
            np.full(count, NOTICES.index(self.notice)),
            np.zeros(count, dtype=int),
            (self.name or self.component,),
        )

    def loss_rate(self, job: Exposed) -> tuple[float, float]:
        """Nodes lost per second, and the mean seconds until a lost node is back."""
        return self.rate(job) * self.nodes, self.repair.mean

    def kinds(self, job: Exposed) -> list[FaultKind]:
        """The one kind of this cause."""
        return [FaultKind(self.rate(job), self.notice, self.nodes)]


class RatedCause(SingleCause):
    """Base of processes whose mean rate is stated."""

    mtbf: SomeTime | None = Field(None, description="mean seconds between faults of one `of`")
    of: Literal["device", "node", "job"] = Field("node", description="what `mtbf` is of: device, node or job")
    per_1000_node_days: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        None, description="faults in a thousand days of a node, in place of `mtbf`"
    )

    @model_validator(mode="after")
    def _one_rate(self) -> RatedCause:
        if (self.mtbf is None) == (self.per_1000_node_days is None):
            raise ValueError("a rate is needed: mtbf or per_1000_node_days")
        return self

    def rate(self, job: Exposed) -> float:
        """Faults of a job per second, in the mean."""
        if self.mtbf is not None:
            return self.units(job) / self.mtbf
        return (self.per_1000_node_days or 0.0) * job.nodes / THOUSAND_NODE_DAYS

    def units(self, job: Exposed) -> int:
        """How many of what ``mtbf`` is of the job has."""
        return {"device": job.devices, "node": job.nodes, "job": 1}[self.of]


def poisson_times(rng: np.random.Generator, rate: float, horizon_s: float) -> NDArray[np.float64]:
    """Times of a Poisson process before the horizon, ascending."""
    return np.sort(rng.uniform(0.0, horizon_s, rng.poisson(rate * horizon_s)))
