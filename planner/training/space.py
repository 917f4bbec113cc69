"""Which values each field of a plan may take in a search: the candidate space, as data.

A candidate is one choice of value for every field here; the others follow from these (``data`` fills the
devices, ``sequence_parallel`` goes with ``tensor``, uneven stages with ``pipeline``). The space is wider than
what can run: rules remove the rest and say how much of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import cached_property
from math import prod
from types import MappingProxyType

import numpy as np

from core.errors import InputError
from core.records import record
from planner.training.constraints import Constraints, Value
from planner.training.lever_space import LeverSpace, settled
from planner.training.offload import placements
from simulator.levers import BY_PLAN, MODULE_NAMES, SHARED, Levers, modules_code
from simulator.levers.overlap_tensor import PROPOSED, TENSOR_FORM
from simulator.ops.counts import layer_counts
from simulator.plan import Choice, Plan
from simulator.rules import IDLE, OFFERS, binding, insist, offers, unoffered
from simulator.schedules import schedules
from simulator.setting import Setting
from simulator.state.policy import PLAIN, StatePolicy
from simulator.training.modules import has_module

SHORTEST_SLICE = 1024
"""Tokens below which a context-parallel rank's share of a sequence is not cut: its attention would be shorter
than the exchange of keys and values beside it."""
COMMON_CONTEXT = ("ring", "all_gather", "ulysses")
"""Context algorithms that a search tries; the others are asked for by name."""
MOST_SEQUENCES = 64
"""Largest micro batch tried; by then matrix products have long reached their full speed."""


def divisors(number: int, limit: int) -> tuple[int, ...]:
    """Divisors of a number up to a limit, in ascending order."""
    return tuple(d for d in range(1, min(number, limit) + 1) if number % d == 0)


def _tensor(setting: Setting) -> tuple[Value, ...]:
    return divisors(setting.cluster.devices, setting.model.heads)


def _pipeline(setting: Setting) -> tuple[Value, ...]:
    return divisors(setting.cluster.devices, setting.model.layers)


def _context(setting: Setting) -> tuple[Value, ...]:
    return divisors(setting.cluster.devices, max(setting.training.seq_len // SHORTEST_SLICE, 1))


def _expert(setting: Setting) -> tuple[Value, ...]:
    return divisors(setting.model.moe.experts, setting.cluster.devices) if setting.model.moe else (1,)


def _expert_tensor(setting: Setting) -> tuple[Value, ...]:
    return divisors(setting.cluster.devices, domain(setting)) if setting.model.moe else (1,)


def _micro_batch(setting: Setting) -> tuple[Value, ...]:
    return divisors(setting.training.global_batch, MOST_SEQUENCES)


def _virtual_pipeline(setting: Setting) -> tuple[Value, ...]:
    """Chunks into which the layers divide, alone or with embedding and loss counted as layers.

    The embedding counts as one layer, the loss as many as its product weighs, and multi-token prediction,
    where it is trained, as one. Kimi K2 runs 61 layers in 16 chunks of four, the last of one layer and the
    loss (Megatron Bridge, recipes/kimi/kimi_k2.py: _get_kimi_k2_pipeline_layout).
    """
    model = setting.model
    layer = max(counts.flops for counts in layer_counts(model).values())
    loss = max(round(model.output_flops / layer), 1)
    ends = 1 + loss + (setting.mtp_layers > 0)
    chunks = {d for extra in range(ends + 1) for d in divisors(model.layers + extra, model.layers // 2)}
    return tuple(sorted({1, *chunks}))


def _schedule(_: Setting) -> tuple[Value, ...]:
    """Schedules whose makespan has a closed form, the usual one first."""
    closed = [name for name, schedule in schedules.items() if schedule.has_closed_form]
    return tuple(sorted(closed, key=lambda name: name != "1f1b"))


def _shard_group(setting: Setting) -> tuple[Value, ...]:
    """All data-parallel ranks, or those of one NVLink domain, whatever the tensor degree leaves of it."""
    return 0, *(width for width in divisors(domain(setting), domain(setting)) if width > 1)


VALUES: Mapping[str, Callable[[Setting], tuple[Value, ...]]] = MappingProxyType(
    {
        "tensor": _tensor,
        "context": _context,
        "context_algorithm": lambda _: COMMON_CONTEXT,
        "expert": _expert,
        "expert_tensor": _expert_tensor,
        "micro_batch": _micro_batch,
        "recompute": lambda _: Choice["recompute"],
        "pipeline": _pipeline,
        "virtual_pipeline": _virtual_pipeline,
        "schedule": _schedule,
        "zero": lambda _: (0, 1, 2, 3),
        "shard_group": _shard_group,
    }
)
"""Values of each field that is searched, the simplest first, in the order in which candidates branch: first
what the kernels of a layer depend on, so that plans with the same kernels are neighbours."""


def domain(setting: Setting) -> int:
    """Devices in use that reach each other without a NIC."""
    return min(setting.cluster.domain, setting.cluster.devices)


@record()
class Space:
    """The candidates of one search.

    ``setting.cluster`` holds exactly the devices to use. ``headroom`` is the share of a device's memory that
    plans leave free. ``values`` maps each field to the values that the
    constraints leave, in the order of ``VALUES``; what the framework sets by default has one value.
    ``policies`` holds the placements of state that are tried; where there are several,
    ``values["policy"]`` counts them. ``levers`` are those that each of these structures may choose;
    ``settled`` those of which one value is never worse than the others.
    """

    setting: Setting
    constraints: Constraints
    values: Mapping[str, tuple[Value, ...]]
    headroom: float = 0.0
    policies: tuple[StatePolicy, ...] = (PLAIN,)
    levers: LeverSpace | None = None
    settled: Mapping[str, Value] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        setting: Setting,
        devices: int,
        constraints: Constraints | None = None,
        headroom: float = 0.0,
        offload: bool = False,
    ) -> Space:
        """Build the space of a job of that many devices; ``offload`` adds placements of state off them.

        Raises:
            InputError: the cluster has fewer devices, a constraint leaves a field without a value, or
                ``offload`` is asked of nodes without host memory.
        """
        constraints = constraints or Constraints()
        setting = replace(setting, cluster=setting.cluster.resized(devices))
        _refuse_unoffered(setting, constraints)
        values = {name: _allowed(name, _offered(setting, name), constraints) for name in VALUES}
        if constraints.schedules == "all":
            every = tuple(sorted(schedules, key=lambda name: name != "1f1b"))
            values["schedule"] = _allowed("schedule", every, constraints)
        for name in (
            "overlap_gradients",
            "overlap_parameters",
            "overlap_expert",
            "overlap_pipeline",
            "rank_order",
            "context_heads",
        ):
            values[name] = (constraints.fixed.get(name, _default(setting, name)),)
        values["overlap_tensor"] = _tensor_overlaps(setting, constraints)
        for name in BY_PLAN:
            values[name] = (constraints.fixed.get(name),)
        levers = LeverSpace.of(setting, constraints)
        if levers.varies:
            # A structure fits if it does with the most recomputation.
            values["recompute"] = levers.recompute[-1:]
            values["recompute_modules"] = (levers.everything,)
        policies = placements(setting.cluster) if offload else (PLAIN,)
        if len(policies) > 1:
            values["policy"] = tuple(range(len(policies)))
        settings = settled(setting, constraints)
        return cls(setting, constraints, MappingProxyType(values), headroom, policies, levers, settings)

    @cached_property
    def shared(self) -> Levers:
        """The levers that all candidates share: settled ones, and those that the constraints fix."""
        fixed = {**self.settled, **self.constraints.fixed}
        return Levers.model_validate({name: fixed[name] for name in SHARED if name in fixed})

    @property
    def candidates(self) -> int:
        """Number of candidates before any rule."""
        return prod(len(values) for values in self.values.values()) * self.choices

    @property
    def choices(self) -> int:
        """Number of choices of levers for each structure."""
        varied = self.levers if self.levers and self.levers.varies else None
        return varied.count * len(varied.recompute) if varied else 1

    @property
    def usable_bytes(self) -> float:
        """Memory of a device that a plan may fill."""
        return self.setting.cluster.device.memory_bytes * (1 - self.headroom)

    @property
    def devices(self) -> int:
        """Devices that every plan occupies."""
        return self.setting.cluster.devices

    @property
    def domain(self) -> int:
        """Devices in use that reach each other without a NIC."""
        return domain(self.setting)

    @property
    def schedule_names(self) -> tuple[str, ...]:
        """Schedules in the order in which ``codes`` counts them."""
        return tuple(str(name) for name in self.values["schedule"])

    def codes(self, name: str) -> np.ndarray:
        """The values of a field as arrays of plans hold them: words as their index."""
        words = self.schedule_names if name == "schedule" else Choice.get(name)
        values = self.values[name]
        if name == "recompute_modules":
            named = (value if isinstance(value, tuple) else None for value in values)
            return np.array([modules_code(names) for names in named], dtype=np.int64)
        return np.array([words.index(value) for value in values] if words else values, dtype=np.int64)


def _offered(setting: Setting, name: str) -> tuple[Value, ...]:
    """The values of a field to try that the release offers."""
    offered = setting.framework.offers.get(name)
    return tuple(value for value in VALUES[name](setting) if offered is None or value in offered)


def _default(setting: Setting, name: str) -> Value:
    """What a plan of the release is that leaves a field out."""
    return setting.framework.defaults.get(name, Plan.model_fields[name].default)


def _tensor_overlaps(setting: Setting, constraints: Constraints) -> tuple[Value, ...]:
    """Overlaps of tensor-parallel traffic: the release's default, then the others that it offers."""
    name = "overlap_tensor"
    offered = (_default(setting, name), *setting.framework.offers.get(name, ()))
    if name in constraints.fixed:
        return (constraints.fixed[name],)
    return tuple(value for value in dict.fromkeys(offered) if constraints.allows(name, value)) or offered[:1]


def _refuse_unoffered(setting: Setting, constraints: Constraints) -> None:
    """Refuse constraints that hold a field at a value that the release or the model lacks.

    Raises:
        InputError: such a value, with those that there are.
    """
    if any(rule.name == OFFERS for rule in binding(setting)):
        for name, value in constraints.fixed.items():
            other, idle = IDLE.get(name, ("", None))
            does_nothing = other in constraints.fixed and constraints.fixed[other] == idle
            if not (does_nothing or offers(setting, name, value)):
                raise InputError(f"{unoffered(setting, name, value)}; {insist(OFFERS)}", f"--fix {name}")
    form = constraints.fixed.get("overlap_tensor")
    for rule in binding(setting) if form in PROPOSED and constraints.fixed.get("tensor") != 1 else ():
        if rule.name == TENSOR_FORM:
            said = f"overlap_tensor={form} does not run with {setting.framework.name}: {rule.why}"
            raise InputError(f"{said}; {insist(rule.name)}", "--fix overlap_tensor")
    modules = constraints.fixed.get("recompute_modules")
    for module in modules if isinstance(modules, tuple) else ():
        if not has_module(setting.model, module):
            there = ", ".join(kind for kind in MODULE_NAMES if has_module(setting.model, kind))
            where = "--fix recompute_modules"
            raise InputError(f"{setting.model.name} has no {module}; it has {there}", where)


def _allowed(name: str, values: tuple[Value, ...], constraints: Constraints) -> tuple[Value, ...]:
    """The values that the constraints leave; a fixed value need not be one that a search would try."""
    if name in constraints.fixed:
        return (constraints.fixed[name],)
    left = tuple(value for value in values if constraints.allows(name, value))
    if not left and constraints.keeps is not None:
        raise InputError(f"no value of {name} has a measured run")
    if not left:
        raise InputError(
            f"limit {name}={constraints.limits[name]} leaves no value; the lowest is {values[0]}"
        )
    return left
