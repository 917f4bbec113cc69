"""Properties of a release of a training framework that no plan states.

How its code casts, copies and gathers, how long its host code takes to launch a kernel, what it allocates
beside the model; under ``defaults`` what a plan is that leaves a field out. Each constant belongs to a
framework, never to a case, and names its source.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ModelWrapValidatorHandler, field_validator, model_validator

from core.errors import InputError, shown, suggestion
from core.loading import Catalogue, build
from core.sources import Sourced
from simulator.frameworks.parts import (
    CastFacts,
    GatherFacts,
    GradientFacts,
    HostFacts,
    KernelFacts,
    MemoryFacts,
)
from simulator.plan import Plan

GROUPS = {
    "host": HostFacts,
    "kernels": KernelFacts,
    "casts": CastFacts,
    "gradients": GradientFacts,
    "gathers": GatherFacts,
    "memory": MemoryFacts,
}
"""Parts of a framework; a release that is based on another states the keys of a part that differ."""


class Framework(Sourced):
    """Properties of a training framework that change the time or memory of a step.

    ``origins`` holds the source of each number, ``source`` those of the other facts.
    """

    UNSOURCED = frozenset({"code_base", "defaults", "lifts", "offers", "by_precision"})

    name: str
    title: str = Field(description="what it is, with versions")
    code_base: str = Field("", description="code that it is a release of, whose rules bind it")
    selective: Literal["core", "all-but-projections", "every-other-product"] = Field(
        "core",
        description="what selective recomputation repeats where a plan names no modules: the attention core "
        "(Korthikanti et al. 2022), all but the projections around it, or all but attention and every other "
        "product",
    )
    stages_by_cost: bool = Field(
        default=False,
        description="where a plan gives no layers of the first or last stage, stages are cut by the weights "
        "of layers and of the output layer",
    )
    host: HostFacts = Field(default_factory=HostFacts, description="the host, while the device waits")
    kernels: KernelFacts = Field(description="kernels of a step")
    casts: CastFacts = Field(default_factory=CastFacts, description="quantisation of operands")
    gradients: GradientFacts = Field(
        default_factory=GradientFacts, description="accumulation and reduction of gradients"
    )
    gathers: GatherFacts = Field(default_factory=GatherFacts, description="gathers of sharded parameters")
    memory: MemoryFacts = Field(description="memory beside the model")
    defaults: dict[str, Any] = Field(
        default_factory=dict, description="plan fields the framework sets when a plan does not"
    )
    offers: dict[str, list[Any]] = Field(
        default_factory=dict,
        description="values that the release offers of the plan fields listed here; a search tries those of "
        "levers beside the default",
    )
    lifts: dict[str, str] = Field(
        default_factory=dict,
        description="rules of its code base that the release does not have, with the reason and its source",
    )
    by_precision: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="keys of the framework that differ in one number format of training; under `defaults` "
        "plan fields",
    )
    source: dict[str, str] = Field(
        description="where the facts that are no numbers come from; a number may name its source itself"
    )

    @model_validator(mode="wrap")
    @classmethod
    def _completed(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Add what the release that it is based on states."""
        if not isinstance(data, Mapping):
            return handler(data)
        definition = dict(data)
        if base := definition.pop("based_on", None):
            if frameworks.resolve(str(base)) is None:
                raise ValueError(
                    f"based_on: unknown framework {base!r}{suggestion(str(base), frameworks.names())}"
                )
            definition = _merged(frameworks.definition(frameworks.resolve(str(base)) or ""), definition)
        return handler(definition)

    def under(self, precision: str) -> "Framework":
        """The framework as it trains in a number format."""
        changes = self.by_precision.get(precision)
        return self.changed(changes) if changes else self

    def changed(self, changes: Mapping[str, Any]) -> "Framework":
        """A copy with other keys; those of a part and of ``defaults`` are named alone."""
        update: dict[str, Any] = {}
        for name, value in changes.items():
            if name == "defaults":
                value = {**self.defaults, **value}
            elif name in GROUPS:
                value = getattr(self, name).model_copy(update=value)
            update[name] = value
        return self.model_copy(update=update)

    @field_validator("by_precision")
    @classmethod
    def _own_keys(cls, changes: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
        for precision, keys in changes.items():
            for name in keys.keys() - cls.model_fields.keys():
                raise ValueError(f"{precision}: unknown key {name!r}{suggestion(name, cls.model_fields)}")
            for group in keys.keys() & GROUPS.keys():
                if not isinstance(keys[group], Mapping):
                    raise ValueError(f"{precision}: {group}: a mapping is needed, found {shown(keys[group])}")
                allowed = GROUPS[group].model_fields
                for name in keys[group].keys() - allowed.keys():
                    raise ValueError(f"{precision}: {group}: unknown key {name!r}{suggestion(name, allowed)}")
        return changes

    @field_validator("defaults")
    @classmethod
    def _plan_fields(cls, defaults: dict[str, Any]) -> dict[str, Any]:
        try:
            build(Plan, {**defaults, "tensor": 2}, "")  # sequence_parallel alone would be refused
        except InputError as error:
            raise ValueError(error.problem) from None
        return defaults

    @field_validator("offers")
    @classmethod
    def _plan_values(cls, offers: dict[str, list[Any]]) -> dict[str, list[Any]]:
        for name, values in offers.items():
            if name not in Plan.model_fields:
                raise ValueError(f"unknown plan field {name!r}{suggestion(name, Plan.model_fields)}")
            for value in values:
                try:
                    build(Plan, {name: [value] if name == "recompute_modules" else value, "tensor": 2}, "")
                except InputError as error:
                    raise ValueError(error.problem) from None
        return offers


def _merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A definition with changes; defaults and sources merge key by key."""
    if name := base.get("based_on"):
        base = _merged(frameworks.definition(name), {k: v for k, v in base.items() if k != "based_on"})
    merged = ("defaults", "lifts", "offers", "source", *(group for group in GROUPS if group in base))
    for name in merged:
        if not isinstance(changes.get(name, {}), Mapping):
            raise ValueError(f"{name}: a mapping is needed, found {shown(changes[name])}")
    parts = {name: {**base.get(name, {}), **changes.get(name, {})} for name in merged}
    return {**base, **changes, **parts}


frameworks = Catalogue("framework", Path(__file__).parent, Framework)
