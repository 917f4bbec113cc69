"""What a lever is: one file that states its values, its default, and what it means elsewhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, dataclass_transform

from core.loading import Strict
from simulator.levers.rule import LeverSetting, ReleaseRule

ClassT = TypeVar("ClassT", bound=type[Any])
ActsOn = Literal["recomputation", "overlap", "ops", "passes"]
"""What a search changes by a lever: what is repeated, what runs beside what, the ops of a layer, or how the
passes of priced ops run."""


class Partial(Strict):
    """Base of the part of a plan that one lever states."""


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def choice(cls: ClassT) -> ClassT:
    """A part of ``Choices``: a dataclass without methods, which takes no time to define."""
    return dataclass(init=False, repr=False, eq=False)(cls)


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def column(cls: ClassT) -> ClassT:
    """A part of arrays of plans, as ``choice``."""
    return dataclass(init=False, repr=False, eq=False)(cls)


@dataclass(frozen=True, eq=False)
class Lever:
    """A choice of a launch script, and what it means to search and reports.

    Attributes:
        name: the plan field.
        acts_on: what a search that varies it changes; empty where no search does.
        combined: whether a search combines its values with those of other levers.
        of_experts: whether it does anything in layers with experts only.
        relevant: whether it does anything in a plan.
        mechanism: what a value is called as a mechanism of measured runs (``planner.training.mechanisms``).
        differs: words for a value where near duplicates differ in it.
        words: words for a value that a plan states.
        rules: what runs it, and what it excludes.
        domain: values of its drivers with measured runs, by driver.
    """

    name: str
    acts_on: ActsOn | None = None
    combined: bool = False
    of_experts: bool = False
    relevant: Callable[[Any], bool] = lambda plan: True
    mechanism: Callable[[LeverSetting, Any], tuple[str, ...]] | None = None
    differs: Callable[[Any], str] | None = None
    words: Callable[[Any], str] | None = None
    rules: tuple[ReleaseRule, ...] = ()
    domain: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
