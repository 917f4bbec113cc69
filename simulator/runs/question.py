"""What a scenario's ``run:`` asks: how long, with which faults, recovery, checkpoints and spares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from core.durations import Span
from core.errors import InputError
from core.loading import Strict
from core.written_numbers import decimal_or_as_it_is
from simulator.checkpoints import AnyMechanism
from simulator.faults import Faults, Law
from simulator.runs.recovery import Recovery
from simulator.stragglers import Straggler

LONGEST_DAYS = 36500.0
MOST_REPLICATIONS = 100_000


class TimedStraggler(Straggler):
    """A straggler of some part of a run."""

    from_: Span = Field(0.0, alias="from", description="start, from the start of the run")
    until: Span | None = Field(None, description="end; default: the end of the run")
    ramp: Span = Field(0.0, description="time in which the slowdown grows from 1, from its start")
    noise: Law | None = Field(
        None, description="seconds that every step is longer, drawn for each; the slowest replica counts"
    )
    detected: Span | None = Field(
        None, description="time until a detector evicts it, at the cost of a recovery; default: never"
    )

    @model_validator(mode="after")
    def _slows(self) -> TimedStraggler:
        if self.slowdown == 1 and self.bandwidth == 1 and self.noise is None:
            raise ValueError("changes nothing: give slowdown, bandwidth or noise")
        if self.until is not None and self.until <= self.from_:
            raise ValueError(f"until: must be after from ({self.from_:g} s), found {self.until:g} s")
        return self


class Drop(Strict):
    """The job goes on without the data-parallel replica that lost a node."""

    drop: Literal["data"]
    stall: Span | None = Field(
        None, description="time that all replicas wait; default: detection and communicators"
    )
    out: Span | None = Field(
        None, description="time until the replica is back; default: replacement, communicators and loading"
    )
    rejoin: Span = Field(0.0, description="time that all replicas wait when it comes back")


class Replan(Strict):
    """The job goes on with the best plan for the nodes that are left, until repairs bring them back."""

    replan: Annotated[int, Field(ge=1, le=64)] = Field(
        description="lost nodes up to which plans are searched"
    )


def _elastic(value: object) -> object:
    if value in ("restart", "wait") or isinstance(value, Drop | Replan):
        return value
    if isinstance(value, Mapping):
        return value
    raise ValueError("restart, wait, {drop: data} or {replan: NODES}")


Elastic = Annotated[Literal["restart", "wait"] | Drop | Replan, BeforeValidator(_elastic)]


class RunQuestion(Strict):
    """The keys of ``run``."""

    days: Annotated[float, Field(gt=0, le=LONGEST_DAYS)] | None = Field(
        None, description="days of the run without any loss"
    )
    steps: Annotated[int, Field(ge=1, le=10**10)] | None = Field(None, description="optimizer steps to do")
    tokens: Annotated[float, BeforeValidator(decimal_or_as_it_is), Field(gt=0, le=1e18)] | None = Field(
        None, description="tokens to train on, also as 2T"
    )
    spares: Annotated[int, Field(ge=0, le=2**20)] | Literal["auto"] = Field(
        0, description="nodes that wait to replace lost ones; `auto`: enough for 99 % of the time"
    )
    faults: Any = Field(None, description="preset, path, mapping with `kind` or `preset`, or a list of them")
    recovery: Recovery = Field(
        default_factory=lambda: Recovery.model_validate({}),
        description="stages from a fault to the next step",
    )
    checkpoints: AnyMechanism | None = Field(
        None, description="`mechanism`, `every`, `places` and the mechanism's keys; default: none"
    )
    elastic: Elastic = Field(
        "restart", description="on a loss: `restart`, `wait` for repair, `{drop: data}`, `{replan: NODES}`"
    )
    stragglers: list[TimedStraggler] = Field(
        default_factory=list, description="stragglers with `from`, `until`, `ramp`, `noise`, `detected`"
    )
    replications: Annotated[int, Field(ge=1, le=MOST_REPLICATIONS)] = Field(
        100, description="times that the event simulation draws the run"
    )
    seed: Annotated[int, Field(ge=0, le=2**32)] = Field(0, description="of the first replication")

    @model_validator(mode="after")
    def _one_length(self) -> RunQuestion:
        stated = [name for name in ("days", "steps", "tokens") if getattr(self, name) is not None]
        if len(stated) != 1:
            raise ValueError(f"one of days, steps and tokens is needed, found {stated or 'none'}")
        return self

    def steps_of(self, tokens_per_step: int, step_s: float, where: str) -> int:
        """Optimizer steps of the run; of ``days``, those that fit without any loss.

        Raises:
            InputError: not even one step.
        """
        if self.steps is not None:
            return self.steps
        if self.tokens is not None:
            steps = round(self.tokens / tokens_per_step)
            if not steps:
                raise InputError(
                    f"{self.tokens:g} tokens are less than half a step of {tokens_per_step:,} tokens",
                    f"{where}.tokens",
                )
            return steps
        days = self.days or 0.0
        steps = int(days * 86400 / step_s)
        if not steps:
            raise InputError(f"{days:g} days are less than a step of {step_s:.3g} s", f"{where}.days")
        return steps


@dataclass(frozen=True)
class AskedRun:
    """A scenario's ``run`` with its faults resolved.

    Attributes:
        question: the keys.
        faults: their processes.
        where: name of the key in errors.
    """

    question: RunQuestion
    faults: Faults
    where: str
