"""Rules about levers: what a release cannot run, as its levers state it.

A setting and plans are read through what a rule needs of them, so that a lever's file stands below both.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np

from hwmodels.cluster import Cluster
from simulator.models import Model
from simulator.workload import Training

MEGATRON_CORE = ("Megatron Core",)


class LeverSetting(Protocol):
    """What levers read of a setting."""

    @property
    def model(self) -> Model:
        """The model."""
        ...

    @property
    def cluster(self) -> Cluster:
        """The cluster, cut to the devices in use."""
        ...

    @property
    def training(self) -> Training:
        """The workload."""
        ...

    @property
    def framework(self) -> Any:
        """The release."""
        ...

    @property
    def choices(self) -> Any:
        """Its levers."""
        ...

    @property
    def graphs(self) -> str:
        """Graphs as they run on the cluster's hosts."""
        ...

    def with_choices(self, **levers: Any) -> "LeverSetting":
        """The setting with some levers chosen."""
        ...

    def of(self, plans: Any) -> "LeverSetting":
        """The setting with the levers that plans share."""
        ...


class Columns(Protocol):
    """What rules read of arrays of plans."""

    @property
    def pipeline(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def virtual_pipeline(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def tensor(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def overlap_tensor(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def data(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def expert(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def micro_batch(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def schedule(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def recompute(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def overlap_expert(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def dispatcher(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def grouped_launches(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def graphs(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def recompute_modules(self) -> np.ndarray:
        """As in ``Plans``."""
        ...

    @property
    def schedule_names(self) -> tuple[str, ...]:
        """As in ``Plans``."""
        ...

    def __len__(self) -> int:
        """Number of plans."""
        ...


class ReleaseRule(NamedTuple):
    """A condition on the levers of a plan.

    Attributes:
        name: what ``allow`` calls it.
        why: the condition and its source.
        code_bases: code bases whose releases it binds; empty: all.
        reads: plan fields that decide, in the order in which messages state them.
        holds: mask of the plans that meet it, shape (plans,).
        of_levers: whether it reads nothing but levers and recomputation.
        bound: whether it concerns a release, where its code base does not say so.
        says: what it says of a plan, where that is more than ``why``.
    """

    name: str
    why: str
    code_bases: tuple[str, ...]
    reads: tuple[str, ...]
    holds: Callable[[Any, Any], np.ndarray]
    of_levers: bool = True
    bound: Callable[[Any], bool] | None = None
    says: Callable[[Any, Any], str] | None = None

    def binds(self, setting: LeverSetting) -> bool:
        """Whether it concerns the release of a setting, whatever the user allows."""
        release = setting.framework
        of_base = not self.code_bases or release.code_base in self.code_bases
        return of_base and self.name not in release.lifts and (self.bound is None or self.bound(setting))

    def explain(self, setting: LeverSetting, plan: Any) -> str:
        """Why a plan breaks it, in one sentence."""
        if self.says:
            return f"{self.says(setting, plan)}; {insist(self.name)}"
        planned = setting.of(plan)
        values = {name: getattr(planned.choices, name, getattr(plan, name)) for name in self.reads}
        values |= {"graphs": planned.graphs} if "graphs" in values else {}
        if plan.recompute != "selective":
            values.pop("recompute_modules", None)
        stated = ", ".join(f"{name}={spelled(value)}" for name, value in values.items())
        where = f"{planned.framework.name} on {planned.cluster.device.name}"
        return f"{stated} does not run with {where}: {self.why}; {insist(self.name)}"


def spelled(value: object) -> str:
    """A value of a plan field as people write it."""
    if isinstance(value, tuple | list):
        return "+".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def insist(name: str) -> str:
    """How a user insists on a plan that breaks a rule."""
    return f"--allow {name} predicts it all the same"


def every(plans: Columns) -> np.ndarray:
    """A mask of all plans."""
    return np.ones(len(plans), dtype=bool)


def uses(
    setting: LeverSetting, name: str, words: tuple[Any, ...], codes: np.ndarray, *values: str
) -> np.ndarray:
    """Whether plans use one of the values of a lever, the release's own where they leave it out.

    Args:
        setting: the release.
        name: of the lever.
        words: values by code.
        codes: of the plans, shape (plans,).
        values: those asked for.
    """
    usual = getattr(setting.choices, name)
    return np.array([(usual if word is None else word) in values for word in words])[codes]
