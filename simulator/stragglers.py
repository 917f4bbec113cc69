"""Stragglers: devices of a job that compute or communicate more slowly than others of their kind."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, model_validator

from core.errors import InputError
from core.loading import Strict
from core.quantities import Count
from simulator.plan import Plan


class Straggler(Strict):
    """Data-parallel replicas with one slow pipeline stage; a stage is as slow as its slowest device."""

    stage: Annotated[int, Field(ge=0, le=2**24)] = Field(0, description="pipeline stage, from 0")
    slowdown: Annotated[float, Field(ge=1, le=1000)] = Field(
        1.0, description="time that its kernels take over that of healthy devices"
    )
    bandwidth: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="share of the bandwidth that its links still have"
    )
    replicas: Count = Field(1, description="data-parallel replicas that have such a stage")

    @model_validator(mode="after")
    def _slows(self) -> "Straggler":
        if self.slowdown == 1 and self.bandwidth == 1:
            raise ValueError("changes nothing: give slowdown or bandwidth")
        return self


def check_stragglers(stragglers: Sequence[Straggler], plan: Plan, where: str) -> None:
    """Refuse stragglers that do not fit a plan.

    Raises:
        InputError: a stage that the plan lacks, or more slow replicas than it has.
    """
    for index, straggler in enumerate(stragglers):
        if straggler.stage >= plan.pipeline:
            raise InputError(
                f"the plan has stages 0 to {plan.pipeline - 1}, found {straggler.stage}",
                f"{where}.{index}.stage",
            )
    slow = sum(straggler.replicas for straggler in stragglers)
    if slow > plan.data:
        raise InputError(f"{slow} slow replicas, the plan has {plan.data}", where)
