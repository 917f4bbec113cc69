"""Samplers of simulators, one YAML file each: whose steps an action waits for, and what their hosts add."""

from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from core.loading import Catalogue
from core.quantities import NotNegative
from core.sources import Sourced


class Sampler(Sourced):
    """How environments are stepped."""

    UNSOURCED: ClassVar[frozenset[str]] = frozenset({"name", "title"})

    name: str
    title: str
    waits: Literal["all", "first"] = Field(
        description="whose steps the next actions wait for: all environments, or the first that end"
    )
    parallel: bool = Field(
        description="whether threads or processes step environments, or one after the other"
    )
    cycle_s: NotNegative = Field(description="host time of a cycle over all environments, s")
    environment_s: NotNegative = Field(
        description="time of the one process that gathers observations, for each environment, s"
    )


samplers = Catalogue("sampler", Path(__file__).parent, Sampler)
