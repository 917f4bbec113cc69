"""Levers that a search varies: their values by release, and which of them can be combined.

A combination is a choice of dispatcher, expert kernels, CUDA graphs and overlap of the expert exchange; with
it goes a set of recomputed modules. Values that a release does by default are left out of plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from core.errors import InputError
from core.records import record
from planner.training.constraints import Constraints
from simulator.levers import LEVERS, MODULE_NAMES, SHARED, VARIED, ActsOn, ModuleName, modules_code
from simulator.ops.elementwise import CROSS_ENTROPY
from simulator.plan import Choice, Plan, Plans
from simulator.rules import OVERLAP_PARTNER, ReleaseRule, binding, may_overlap, runs
from simulator.setting import Setting
from simulator.training.loss_memory import LOGIT_BYTES
from simulator.training.modules import has_module

SEARCHED = {lever.name: lever for lever in VARIED if lever.combined}
"""Levers of a combination; they change the time of a layer, not what it keeps."""

Modules = tuple[ModuleName, ...]
INSIDE: dict[ModuleName, tuple[ModuleName, ...]] = {
    "mlp": ("mlp_act",),
    "moe": ("moe_act", "shared_experts"),
}
"""Modules that others repeat too."""


PLAIN = Plans.of(Plan.model_validate({}))
"""A plan whose levers are replaced."""


Acting = tuple[tuple[str, Any], ...]
"""Some levers with their values."""


@dataclass(frozen=True)
class Combination:
    """One value of each lever of ``SEARCHED``, in their order; None is the default of the release."""

    values: tuple[Any, ...]

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The values by plan field."""
        return dict(zip(SEARCHED, self.values, strict=True))

    def with_value(self, name: str, value: Any) -> Combination:
        """The combination with another value of a lever."""
        return Combination(tuple(value if field == name else self.fields[field] for field in SEARCHED))

    @cached_property
    def ops(self) -> Acting:
        """The levers that change the ops of a layer."""
        return self._acting_on("ops")

    @cached_property
    def passes(self) -> Acting:
        """The levers that change the passes of a layer alone, those of its ops among them."""
        return self._acting_on("ops", "passes")

    @cached_property
    def overlaps(self) -> bool:
        """Whether micro batches run beside each other."""
        return any(value for _, value in self._acting_on("overlap"))

    def _acting_on(self, *kinds: ActsOn) -> Acting:
        return tuple((name, self.fields[name]) for name, lever in SEARCHED.items() if lever.acts_on in kinds)


class MemoryUse(NamedTuple):
    """What decides the memory of a combination: what graphs replay, and whether micro batches overlap."""

    graphs: str
    overlaps: bool

    @property
    def is_free(self) -> bool:
        """Whether the combination holds nothing beside what its layers keep."""
        return self.graphs == "none" and not self.overlaps


@record()
class LeverSpace:
    """Values of each searched lever, the release's default first.

    ``modules`` are the sets of modules that selective recomputation may repeat, ``recompute`` the kinds of
    recomputation that are tried; ``together`` says which choices are proven (``proven``).
    """

    setting: Setting
    values: Mapping[str, tuple[Any, ...]]
    modules: tuple[Modules, ...] = ()
    recompute: tuple[str, ...] = ()
    together: Callable[[Combination, Modules | None], bool] | None = None

    @classmethod
    def of(cls, setting: Setting, constraints: Constraints) -> LeverSpace:
        """The levers that the release offers for the model and that the constraints leave.

        Raises:
            InputError: fixed levers that go with no value of the others.
        """
        offers, fixed = setting.framework.offers, constraints.fixed
        setting = setting.with_choices(**{name: fixed[name] for name in SHARED if name in fixed})
        values: dict[str, tuple[Any, ...]] = {}
        for name, lever in SEARCHED.items():
            default = Plan.model_fields[name].default
            if name not in LEVERS:  # plans state it
                default = setting.framework.defaults.get(name, default)
            if name in fixed:
                values[name] = (fixed[name],)
            elif lever.of_experts and setting.model.moe is None:
                values[name] = (default,)
            else:
                tried = _values(setting, name, default, offers.get(name, ()))
                allowed = (value for value in tried if value == default or constraints.allows(name, value))
                values[name] = tuple(allowed) or tried[:1]
        kinds = (str(fixed["recompute"]),) if "recompute" in fixed else Choice["recompute"]
        sets = _module_sets(setting, constraints)
        if constraints.keeps is not None:
            keeps = constraints.keeps.proves
            sets = tuple(modules for modules in sets if keeps("recompute_modules", modules))
            for name in values.keys() - fixed.keys():
                values[name] = tuple(v for v in values[name] if keeps(name, v)) or values[name][:1]
        kinds = tuple(
            kind
            for kind in kinds
            if kind in offers.get("recompute", kinds)
            and (kind != "selective" or sets)
            and constraints.allows("recompute", kind)
        )
        space = cls(setting, values, sets, kinds)
        left = tuple(kind for kind in kinds if space.has(kind))
        if kinds and not left:
            _refuse_fixed(space)
        return replace(space, recompute=left)

    @property
    def count(self) -> int:
        """Choices of all levers, whether or not they can be combined."""
        return prod(map(len, self.values.values())) * max(len(self.modules), 1)

    @property
    def everything(self) -> Modules:
        """All modules that any set has: recomputing them frees the most memory."""
        return tuple(name for name in MODULE_NAMES if any(name in modules for modules in self.modules))

    @property
    def varies(self) -> bool:
        """Whether there is anything to choose."""
        return self.count > 1

    @cached_property
    def rules(self) -> tuple[ReleaseRule, ...]:
        """The rules of the release that the question does not set aside."""
        return binding(self.setting)

    @cached_property
    def combinations(self) -> tuple[Combination, ...]:
        """All combinations, the release's default first."""
        combinations = [Combination(values) for values in product(*(self.values[name] for name in SEARCHED))]
        plain = self._together(combinations, self._as_plans(combinations), ())
        return tuple(combination for combination, runs in zip(combinations, plain, strict=True) if runs)

    @cached_property
    def _plans(self) -> Plans:
        """The combinations as plans."""
        return self._as_plans(self.combinations)

    def _as_plans(self, combinations: Sequence[Combination]) -> Plans:
        """Plans of combinations that leave all else as it is by default."""
        plans = PLAIN.take(np.zeros(len(combinations), dtype=np.int64))
        return replace(plans, **self.columns(combinations))

    def columns(self, combinations: Sequence[Combination]) -> dict[str, np.ndarray]:
        """Combinations as columns of plans, shape (combinations,) each."""
        columns = {}
        for name in SEARCHED:
            values, words = [row.fields[name] for row in combinations], Choice.get(name)
            columns[name] = np.array(
                [words.index(value) for value in values] if words else values, dtype=np.int64
            )
        return columns

    @cached_property
    def memory_uses(self) -> tuple[MemoryUse, ...]:
        """What combinations differ in that takes memory, in the order of the combinations."""
        return tuple(dict.fromkeys(self._uses))

    @cached_property
    def use_of(self) -> np.ndarray:
        """The place in ``memory_uses`` of each combination, shape (combinations,)."""
        return np.array([self.memory_uses.index(each) for each in self._uses], dtype=np.int64)

    @cached_property
    def _uses(self) -> list[MemoryUse]:
        graphs = {name: self.setting.with_choices(graphs=name).graphs for name in self.values["graphs"]}
        return [MemoryUse(graphs[row.fields["graphs"]], row.overlaps) for row in self.combinations]

    def allows(self, levers: Combination, modules: Modules | None) -> bool:
        """Whether levers can be combined, with the modules that they recompute (None: whole layers)."""
        return bool(self._together([levers], self._as_plans([levers]), modules)[0])

    def _together(
        self, combinations: Sequence[Combination], plans: Plans, modules: Modules | None
    ) -> np.ndarray:
        """Which combinations run with recomputed modules, shape (combinations,)."""
        kind = Choice["recompute"].index("full" if modules is None else "selective" if modules else "none")
        modules_codes = np.full(len(plans), modules_code(modules or None))
        plans = replace(plans, recompute=np.full(len(plans), kind), recompute_modules=modules_codes)
        mask = runs(self.setting, plans, (rule for rule in self.rules if rule.of_levers))
        if self.together is not None:
            mask &= np.array([self.together(row, modules) for row in combinations], dtype=bool)
        return mask

    def has(self, recompute: str) -> bool:
        """Whether some combination runs with a kind of recomputation."""
        sets = {"none": ((),), "selective": self.modules, "full": (None,)}[recompute]
        return any(self.allowed(modules).any() for modules in sets)

    def allowed(self, modules: Modules | None) -> np.ndarray:
        """Which combinations go with recomputed modules (None: whole layers), shape (combinations,)."""
        if modules not in self._allowed:
            self._allowed[modules] = self._together(self.combinations, self._plans, modules)
        return self._allowed[modules]

    @cached_property
    def _allowed(self) -> dict[Modules | None, np.ndarray]:
        """Which combinations go with each set of modules that was asked for, shape (combinations,)."""
        return {}

    def in_context(self, overlaps: bool) -> np.ndarray:
        """Which combinations go with plans that may overlap the exchange, or not, shape (combinations,)."""
        return np.array([overlaps or not row.overlaps for row in self.combinations])

    def may_overlap(self, plans: Plans) -> np.ndarray:
        """Which plans may overlap the exchange with experts, shape (plans,)."""
        if all(rule.name != OVERLAP_PARTNER for rule in self.rules):
            return np.ones(len(plans), dtype=bool)
        return may_overlap(self.setting, plans)


def settled(setting: Setting, constraints: Constraints) -> Mapping[str, Any]:
    """Levers of which the release offers a value that no plan is slower or larger with.

    The loss kernel: what it reads, writes, launches and holds is a multiple of the logits, whatever the plan.
    A value that is better in one of these and worse in another is left to the release or to the user.
    """
    name = "cross_entropy"
    usual = setting.choices.cross_entropy
    offered = (usual, *setting.framework.offers.get(name, ()))
    costs = {value: np.array([*CROSS_ENTROPY[value], LOGIT_BYTES[value]]) for value in dict.fromkeys(offered)}
    best = min(costs, key=lambda value: (costs[value].tolist(), value != usual))
    least = all((costs[best] <= others).all() for others in costs.values())
    return {name: best} if least and best != usual and name not in constraints.fixed else {}


def _refuse_fixed(space: LeverSpace) -> None:
    """Refuse fixed levers that rules keep from every combination.

    Raises:
        InputError: the first rule that no combination meets, with the levers that it reads.
    """
    sets = {"none": ((),), "selective": space.modules, "full": (None,)}
    combinations = [Combination(values) for values in product(*(space.values[name] for name in SEARCHED))]
    tried = [
        Plan.model_validate({**row.fields, "recompute": kind, "recompute_modules": modules or None})
        for kind in space.recompute
        for modules in sets[kind]
        for row in combinations
    ]
    rules = [rule for rule in space.rules if rule.of_levers]
    problems = [
        [
            rule.explain(space.setting, plan)
            for rule in rules
            if not runs(space.setting, Plans.of(plan), [rule])[0]
        ]
        for plan in tried
    ]
    raise InputError(min(problems, key=len)[0], "--fix")


def _values(setting: Setting, name: str, default: Any, offered: Sequence[Any]) -> tuple[Any, ...]:
    """Values of a lever to try, none of which does what another one does."""
    if not offered:
        return (default,)
    if name == "graphs":
        # Graphs of attention replay those of the router too: they are never slower.
        smaller = ("router",) if "attention" in offered else ()
        return (default, *(value for value in offered if value not in (setting.graphs, *smaller)))
    usual = setting.choices.dispatcher if name == "dispatcher" else None
    if usual == "flex-between-nodes":
        return tuple(offered)
    done = default if name == "overlap_expert" else getattr(setting.choices, name)
    return (default, *(value for value in offered if value != done))


def _module_sets(setting: Setting, constraints: Constraints) -> tuple[Modules, ...]:
    fixed = constraints.fixed.get("recompute_modules")
    if isinstance(fixed, tuple):
        return (fixed,)  # type: ignore[return-value]
    offered = setting.framework.offers.get("recompute_modules", ())
    names: list[ModuleName] = [
        name
        for name in MODULE_NAMES
        if name in offered
        and has_module(setting.model, name)
        and constraints.allows("recompute_modules", (name,))
    ]
    # The attention core alone is what selective recomputation repeats by default.
    return tuple(sorted(_sets(names), key=len)) or (("core_attn",),)


def _sets(names: Sequence[ModuleName]) -> Iterator[Modules]:
    """Sets of modules, none of which lies inside another of the same set."""
    for switches in product((False, True), repeat=len(names)):
        modules: Modules = tuple(name for name, on in zip(names, switches, strict=True) if on)
        if modules and not any(part in modules for name in modules for part in INSIDE.get(name, ())):
            yield modules
