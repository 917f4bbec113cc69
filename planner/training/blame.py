"""Explain an empty search: the rules whose removal would leave candidates of valid shape."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from core.errors import InputError
from planner.training.candidates import Enumeration
from planner.training.constraints import Constraints
from planner.training.rules import structure
from planner.training.space import Space, divisors

REASONS = 2
"""Rules whose reasons a message gives; others are named."""
NEAR = 4
"""Nodes more or less, and batches, that are tried where no plan has a valid shape."""
WITH = {"batch": ("schedule",)}
"""Rules that need the result of another rule: schedules need a whole number of micro batches."""


def blamed(space: Space, removed: dict[str, int]) -> list[str]:
    """Names of the rules to blame.

    Rules whose removal alone leaves candidates; if there are none, a set of
    rules whose joint removal does, those that reject most first.

    Args:
        space: the searched space.
        removed: number of candidates that each rule removed.
    """
    removing = [name for name, count in removed.items() if count]
    alone = [name for name in removing if _left(space, {name, *WITH.get(name, ())}) is None]
    if alone:
        return alone
    without: list[str] = []
    left: dict[str, int] | None = removed
    while left:
        _, cause = max((count, name) for name, count in left.items())
        without.append(cause)
        left = _left(space, set(without))
    return without


def _left(space: Space, names: set[str]) -> dict[str, int] | None:
    """What the other rules about shapes remove where some are left out; None where candidates stay."""
    enumeration = Enumeration(space, [rule for rule in structure(space) if rule.name not in names])
    # Rules may divide what does not divide where an earlier one is missing.
    with np.errstate(all="ignore"):
        stays = next(enumeration.blocks(), None) is not None
    return None if stays else dict(enumeration.removed)


def no_shape(space: Space, removed: dict[str, int]) -> str:
    """A message with the rules to blame, the first with its reason, and the values that would do instead."""
    why = {rule.name: rule.why for rule in reversed(structure(space))}
    names = blamed(space, removed)
    reasons = "; ".join(f"{why[name]} ({name})" for name in names[:REASONS])
    if len(names) > REASONS:
        reasons += f"; other rules: {', '.join(f'({name})' for name in names[REASONS:])}"
    under = space.constraints.describe()
    problem = f"no plan for {space.devices} devices{under and f' with {under}'} has a valid shape: {reasons}"
    return "; ".join([problem, *_instead(space), *_other_numbers(space)])


def _instead(space: Space) -> Iterator[str]:
    """For each fixed field whose other values leave candidates: these values."""
    for name in space.constraints.fixed:
        others = space.constraints.without(name)
        values = [
            value
            for value in Space.of(space.setting, space.devices, others).values.get(name, ())
            if _has_shape(space, replace(others, fixed={**others.fixed, name: value}))
        ]
        if values:
            yield f"allowed with the rest: {name}={', '.join(map(str, values))}"


def _other_numbers(space: Space) -> Iterator[str]:
    """The nearest sizes and batches with candidates."""
    setting, devices = space.setting, space.devices
    node, batch = setting.cluster.devices_per_node, setting.training.global_batch
    sizes = {devices // node * node + node * step for step in range(-NEAR, NEAR + 1)} - {devices}
    fitting = [
        size for size in sorted(sizes) if size > 0 and _has_shape(space, space.constraints, devices=size)
    ]
    around = [max((size for size in fitting if size < devices), default=0)]
    around += [min((size for size in fitting if size > devices), default=0)]
    if any(around):
        yield f"GPUs that would do: {' or '.join(f'{size:,}' for size in around if size)}"
    batches = {max(round(batch / replicas), 1) * replicas for replicas in divisors(devices, batch)} - {batch}
    nearest = sorted(batches, key=lambda number: abs(number - batch))[:NEAR]
    fitting = [number for number in nearest if _has_shape(space, space.constraints, batch=number)]
    if fitting:
        yield f"a global batch that would do: {fitting[0]:,}"


def _has_shape(space: Space, constraints: Constraints, devices: int = 0, batch: int = 0) -> bool:
    """Whether constraints leave candidates, with another number of devices or another batch if given."""
    training = space.setting.training
    if batch:
        training = training.model_copy(update={"global_batch": batch})
    try:
        tried = Space.of(replace(space.setting, training=training), devices or space.devices, constraints)
    except InputError:
        return False
    return next(Enumeration(tried, structure(tried)).blocks(), None) is not None
