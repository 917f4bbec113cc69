"""Notes beside a ranking of training plans: a default that decides much, a batch that divides badly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshwright.results import PlanSearch

NEAR = 0.05
"""Share of a batch within which another one is offered."""
FEWEST, ODD = 64, 32
"""Sequences of a step from which a batch may divide badly, and the divisor that says it does not."""
FAR = 1 / 3
"""Share within which a batch that divides over the devices is offered."""
GAIN = 0.03
"""Share of the time of a sequence from which the other batch is named."""
USUAL = 8192
"""Tokens of the sequences of most pre-training."""


def note_defaults(scenario: str, arguments: Mapping[str, Any], search: PlanSearch) -> None:
    """Say that sequences are the model's longest, where nobody stated a length."""
    from meshwright.commands.output import note

    length = search.result.setting.training.seq_len
    if not scenario and arguments.get("seq_len") is None and length > USUAL:
        note(f"note: sequences of {length:,} tokens, the model's longest; --seq-len 8k is more usual")


def note_partial_node(search: PlanSearch) -> None:
    """Say that the last node is used in part, and which numbers of devices fill nodes."""
    from meshwright.commands.output import note

    cluster = search.result.setting.cluster
    nodes, rest = divmod(cluster.devices, cluster.devices_per_node)
    if nodes and rest:
        below, above = (count * cluster.devices_per_node for count in (nodes, nodes + 1))
        note(
            f"note: {cluster.devices:,} GPUs are {nodes:,} nodes of {cluster.devices_per_node} and {rest} "
            f"of another; --gpus {below:,} or {above:,} fills nodes"
        )


def note_rounder_batch(scenario: str, arguments: Mapping[str, Any], search: PlanSearch) -> None:
    """Say that a batch with more divisors would take less time a sequence, where a search finds so."""
    from core.errors import MeshwrightError
    from meshwright.api import training as api
    from meshwright.commands.output import note

    batch = search.result.setting.training.global_batch
    gpus = search.result.setting.cluster.devices
    other = rounder(batch, gpus)
    if other is None:
        return
    rounded = {**arguments, "batch_tokens": None, "global_batch": other, "refine": 0, "top": 1}
    rounded.pop("execution", None)
    try:
        nearby = api.plan(scenario or None, **rounded)
        nearby.check()
    except MeshwrightError:
        return
    times = [float(each.found.step.time.min()) for each in (search, nearby)]
    gain = 1.0 - (times[1] / other) / (times[0] / batch)
    if gain > GAIN:
        why = (
            "it divides over them" if other % gpus == 0 and batch % odd_part(gpus) else "it has more divisors"
        )
        note(
            f"note: batch {batch:,} on {gpus:,} GPUs: {other:,} would take {100 * gain:.0f} % less time a "
            f"sequence, as {why}"
        )


def rounder(batch: int, devices: int = 1) -> int | None:
    """The nearest batch that divides over devices whose odd factor the batch lacks; else the batch within
    `NEAR` with most factors of two, the nearest of several; None for a round one."""
    if batch % odd_part(devices):
        other = max(round(batch / devices), 1) * devices
        return other if abs(other - batch) <= FAR * batch else None
    if batch < FEWEST or batch % ODD == 0:
        return None
    reach = int(batch * NEAR)
    others = range(batch - reach, batch + reach + 1)
    best = max(others, key=lambda other: (other & -other, -abs(other - batch)))
    return best if best % ODD == 0 else None


def odd_part(number: int) -> int:
    """A number without its factors of two."""
    return number // (number & -number)
