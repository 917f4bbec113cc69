"""The answer when nothing fits: the nearest plan, the missing bytes, and changes that would help."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

import numpy as np

from core.errors import InputError
from core.records import record
from planner.training.candidates import Enumeration
from planner.training.constraints import Constraints
from planner.training.rules import plan_memory, structure
from planner.training.space import Space
from simulator.frameworks import default_name, frameworks
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.plan import Plan, Plans
from simulator.rules import adapter_problem, offers
from simulator.state.adapter import Adapter
from simulator.state.place import Tiers, Update
from simulator.training.memory import memory
from simulator.uncertainty import default_headroom

SAVERS = (
    "recompute",
    "overlap_expert",
    "graphs",
    "zero",
    "shard_group",
    "micro_batch",
    "tensor",
    "pipeline",
    "context",
    "expert",
    "expert_tensor",
    "data",
    "schedule",
    "virtual_pipeline",
    "sequence_parallel",
)
"""Fields by which a plan saves memory; relaxing a constraint on one may make room."""


@record()
class Nearest:
    """The plan that needs the least memory."""

    plan: Plan
    peak_bytes: float
    stage: str
    """The kind of stage whose devices are fullest."""
    parts: dict[str, float]
    """Bytes of such a device by part."""


@record()
class Remedy:
    """A change of the question, and the minimum memory that a plan then needs."""

    change: str
    nearest: Nearest
    fits: bool


@record()
class Shortfall:
    """Why nothing fits."""

    nearest: Nearest
    capacity_bytes: float
    """Memory of a device less the headroom."""
    remedies: tuple[Remedy, ...]
    """Changes that lower the need, those that make room first."""

    @property
    def short_bytes(self) -> float:
        """Bytes that the nearest plan needs beyond what a device has."""
        return self.nearest.peak_bytes - self.capacity_bytes

    def message(self) -> str:
        """The answer in words, with the breakdown and the changes that would help."""
        closest = self.nearest
        parts = sorted(closest.parts.items(), key=lambda item: -item[1])
        lines = [
            f"no plan fits: the nearest needs {_gib(closest.peak_bytes)} on a device of the "
            f"{closest.stage} stage, which may fill {_gib(self.capacity_bytes)}: "
            f"{_gib(self.short_bytes)} short",
            f"  nearest: {describe(closest.plan)}",
            "  " + ", ".join(f"{name} {_gib(size)}" for name, size in parts if size > 0),
        ]
        for remedy in self.remedies:
            short = remedy.nearest.peak_bytes - self.capacity_bytes
            outcome = "a plan fits" if remedy.fits else f"still {_gib(short)} short"
            lines.append(f"  {remedy.change}: {outcome} ({describe(remedy.nearest.plan)})")
        if not any(remedy.fits for remedy in self.remedies):
            lines.append("  no single change makes room; use devices with more memory, or more of them")
        return "\n".join(lines)


def describe(plan: Plan) -> str:
    """Degrees, micro batch, sharding and recomputation of a plan in one line."""
    return f"{plan.describe()}, micro batch {plan.micro_batch}, ZeRO {plan.zero}, recompute {plan.recompute}"


def _gib(size: float) -> str:
    return f"{size / 2**30:,.1f} GiB"


def nearest(space: Space) -> Nearest | None:
    """The plan of a space that needs the least memory, if any plan has a valid shape."""
    best: Nearest | None = None
    for block in Enumeration(space, structure(space)).blocks():
        memory = plan_memory(block)
        index = int(np.argmin(memory.peak))
        if best is None or memory.peak[index] < best.peak_bytes:
            stage = int(np.argmax(memory.stages[:, index]))
            best = Nearest(
                plan=block.take(slice(index, index + 1)).plans.plan(0),
                peak_bytes=float(memory.peak[index]),
                stage=memory.layout.name(stage),
                parts=memory.breakdown(index, stage),
            )
    return best


def _on_host(space: Space, closest: Nearest) -> Iterator[Remedy]:
    """The nearest plan with gradients and the optimizer's state in host memory, where both fit."""
    setting, off = space.setting, {"host": 1.0}
    node = setting.cluster.node
    if node is None or node.host_bytes is None or closest.plan.place is not None:
        return
    place = Tiers.model_validate({"gradients": off, "optimizer": off})
    update = Update.model_validate({"on": "host"})
    plan = closest.plan.model_copy(update={"place": place, "update": update})
    plans = Plans.of(plan)
    stages = Stages.of(setting, plans)
    usage = memory(setting, plans, stages, parameters(setting, plans, stages))
    if usage.peak[0] <= space.usable_bytes and usage.on_tier("host")[0] <= node.host_bytes:
        row = int(np.argmax(usage.stages[:, 0]))
        offloaded = Nearest(plan, float(usage.peak[0]), stages.name(row), usage.breakdown(0, row))
        yield Remedy("gradients and optimizer on the host (plan.place)", offloaded, True)


def explain(space: Space) -> Shortfall | None:
    """Explain why nothing in a space fits, and try changes that help; None if no plan has a valid shape."""
    closest = nearest(space)
    if closest is None:
        return None
    capacity = space.usable_bytes
    remedies = []
    for change, wider in _wider(space):
        candidate = nearest(wider)
        if candidate and (candidate.peak_bytes < closest.peak_bytes or wider.usable_bytes > capacity):
            room = wider.usable_bytes
            remedies.append(Remedy(change, candidate, candidate.peak_bytes <= room))
            if change.startswith("more devices") and candidate.peak_bytes <= capacity:
                break
    remedies.sort(key=lambda remedy: (not remedy.fits, remedy.nearest.peak_bytes))
    # Changes of the question come first, then state off the device, which takes time.
    fitting = sum(remedy.fits for remedy in remedies)
    remedies[fitting:fitting] = _on_host(space, closest)
    return Shortfall(closest, capacity, tuple(remedies))


def _wider(space: Space) -> Iterator[tuple[str, Space]]:
    """The same question with one constraint fewer, with tensor beyond the domain, or with more devices."""
    setting, constraints = space.setting, space.constraints
    for name in SAVERS:
        if name in constraints.fixed or name in constraints.limits:
            yield (
                f"another {name}",
                Space.of(setting, space.devices, constraints.without(name), space.headroom),
            )
    if len({*constraints.fixed, *constraints.limits}) > 1:
        yield "without constraints", Space.of(setting, space.devices, None, space.headroom)
    if space.headroom:
        yield "no headroom", Space.of(setting, space.devices, constraints)
    yield from _adapted(space)
    for shorter in SHORTER:
        if shorter < setting.training.seq_len and setting.training.lengths is None:
            training = setting.training.model_copy(update={"seq_len": shorter})
            cut = replace(setting, training=training)
            with suppress(InputError):
                yield f"--seq-len {shorter}", Space.of(cut, space.devices, constraints, space.headroom)
    if "tensor" not in constraints.fixed and offers(setting, "tensor", 2 * space.domain):
        wider = Constraints(
            {**constraints.fixed, "tensor": 2 * space.domain}, constraints.limits, constraints.keeps
        )
        across = Space.of(setting, space.devices, wider, space.headroom)
        yield f"tensor={2 * space.domain}, across the NVLink domain", across
    available = setting.cluster.nodes * setting.cluster.devices_per_node
    devices = 2 * space.devices
    while devices <= available:
        yield f"more devices: {devices}", Space.of(setting, devices, constraints, space.headroom)
        devices *= 2


SHORTER = (8192, 2048)
"""Lengths of sequences that are offered in place of longer ones."""
RANK = 16
"""Rank of adapters that are offered where all parameters do not fit."""


def _adapted(space: Space) -> Iterator[tuple[str, Space]]:
    """The question with adapters on frozen weights, or with these in NF4, under their default framework."""
    setting = space.setting
    adapter = setting.training.adapter
    rank = RANK if adapter is None else adapter.rank
    tried: dict[str, Adapter] = {} if adapter else {f"--adapter {rank}": Adapter(rank=rank)}  # type: ignore[call-arg]
    if adapter is None or adapter.base not in ("nf4", "nvfp4"):
        tried[f"--adapter {rank}:nf4"] = Adapter(rank=rank, base="nf4")  # type: ignore[call-arg]
    for flag, narrower in tried.items():
        name = default_name(setting.cluster.device, narrower, space.devices)
        training = setting.training.model_copy(update={"adapter": narrower})
        changed = replace(setting, training=training, framework=frameworks.get(name))
        if adapter_problem(changed):
            continue
        # The memory of another framework is known less or better; a share that was asked for stays.
        usual = space.headroom == default_headroom(setting)
        free = default_headroom(changed) if usual else space.headroom
        with suppress(InputError):
            yield flag, Space.of(changed, space.devices, space.constraints, free)
