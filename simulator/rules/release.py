"""What a release can run: the values that it offers, and which levers go together.

Every question that takes a plan asks these rules: ``simulate``, ``whatif``, ``sweep``, ``import``, ``export``
and the search. A rule binds the releases of its code bases. A release that is an exception says so in its
file (``lifts``), and a user insists with ``allow`` (``--allow RULE``); the plan is then predicted as stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from core.errors import InputError, UnknownNameError
from simulator.levers import LEVERS, MODULE_NAMES, SHARED, modules_of
from simulator.plan import FULL, SELECTIVE, Choice, Plan, Plans
from simulator.setting import Setting

MEGATRON_CORE = ("Megatron Core",)
MOE_BIT = 1 << MODULE_NAMES.index("moe")


class ReleaseRule(NamedTuple):
    """A condition on the levers of a plan.

    Attributes:
        name: what ``allow`` calls it.
        why: the condition and its source.
        code_bases: code bases whose releases it binds; empty: all.
        reads: plan fields that decide, in the order in which messages state them.
        holds: mask of the plans that meet it, shape (plans,).
    """

    name: str
    why: str
    code_bases: tuple[str, ...]
    reads: tuple[str, ...]
    holds: Callable[[Setting, Plans], np.ndarray]

    def binds(self, setting: Setting) -> bool:
        """Whether it concerns the release of a setting, whatever the user allows."""
        release = setting.framework
        if self.name == OFFERS:
            return bool(release.offers)
        return self.name not in release.lifts and (
            not self.code_bases or release.code_base in self.code_bases
        )

    @property
    def of_levers(self) -> bool:
        """Whether it reads nothing but levers and recomputation."""
        return self.name not in (OFFERS, OVERLAP_PARTNER)

    def explain(self, setting: Setting, plan: Plan) -> str:
        """Why a plan breaks it, in one sentence."""
        if self.name == OFFERS:
            return f"{'; '.join(lacking(setting, plan))}; {insist(OFFERS)}"
        own = setting.of(plan)
        values = {name: getattr(own.choices if name in LEVERS else plan, name) for name in self.reads}
        values |= {"graphs": own.graphs} if "graphs" in values else {}
        if plan.recompute != "selective":
            values.pop("recompute_modules", None)
        stated = ", ".join(f"{name}={spelled(value)}" for name, value in values.items())
        where = f"{own.framework.name} on {own.cluster.device.name}"
        return f"{stated} does not run with {where}: {self.why}; {insist(self.name)}"


OFFERS = "offers"
"""Name of the rule that a release has the values that a plan states."""

GRAPHS_RECOMPUTE = "graphs_recompute"
COMPARED = ("schedule", "zero")
"""Fields whose ``offers`` narrow a search alone: users compare their values on any release."""

OVERLAP_PARTNER = "overlap_partner"
"""Name of the rule on what an overlapped exchange runs beside, the only one that reads degrees."""


def spelled(value: object) -> str:
    """A value of a plan field as people write it."""
    if isinstance(value, tuple | list):
        return "+".join(map(str, value)) or "none"
    return str(value).lower() if isinstance(value, bool) else str(value)


def insist(name: str) -> str:
    """How a user insists on a plan that breaks a rule."""
    return f"--allow {name} predicts it all the same"


def _uses(setting: Setting, plans: Plans, name: str, *values: str) -> np.ndarray:
    """Whether plans use one of the values of a lever, the release's own where they leave it out."""
    usual = getattr(setting.choices, name)
    used = np.array([(usual if word is None else word) in values for word in Choice[name]])
    return used[getattr(plans, name)]


def _partial_graphs(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether graphs replay parts of a layer, shape (plans,)."""
    graphs = [setting.with_choices(graphs=word).graphs for word in Choice["graphs"]]
    return np.array([word not in ("none", "step") for word in graphs])[plans.graphs]


def _repeats_experts(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether selective recomputation repeats whole layers' experts, shape (plans,)."""
    usual = setting.choices.recompute_modules or ()
    modules = plans.recompute_modules
    repeats = np.where(modules < 0, "moe" in usual, modules & MOE_BIT > 0)
    return (plans.recompute == SELECTIVE) & repeats


def _every(plans: Plans) -> np.ndarray:
    return np.ones(len(plans), dtype=bool)


def _step_graphs(setting: Setting, plans: Plans) -> np.ndarray:
    if setting.model.moe is None or setting.of(plans).choices.fixed_capacity:
        return _every(plans)
    on_device = _uses(setting, plans, "grouped_launches", "fused-mlp")
    on_device &= _uses(setting, plans, "dispatcher", "flex")
    return ~_uses(setting, plans, "graphs", "step") | on_device


def _fused_mlp(setting: Setting, plans: Plans) -> np.ndarray:
    runs = setting.training.precision == "mxfp8" and setting.cluster.device.generation.grouped_mxfp8
    if runs or setting.model.moe is None:
        return _every(plans)
    return ~_uses(setting, plans, "grouped_launches", "fused-mlp")


def _flex(setting: Setting, plans: Plans) -> np.ndarray:
    if setting.cluster.device.generation.flex_dispatcher or setting.model.moe is None:
        return _every(plans)
    return ~_uses(setting, plans, "dispatcher", "flex")


def _deepep(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether plans send tokens with DeepEP, shape (plans,)."""
    if setting.of(plans).choices.dispatcher_library != "deepep" or setting.model.moe is None:
        return ~_every(plans)
    return _uses(setting, plans, "dispatcher", "flex")


def _deepep_rack(setting: Setting, plans: Plans) -> np.ndarray:
    in_rack = setting.cluster.domain > setting.cluster.devices_per_node
    return ~_deepep(setting, plans) if in_rack else _every(plans)


def _deepep_capacity(setting: Setting, plans: Plans) -> np.ndarray:
    pads = setting.of(plans).choices.fixed_capacity
    return ~_deepep(setting, plans) if pads else _every(plans)


def _graphs_recompute(setting: Setting, plans: Plans) -> np.ndarray:
    around = (plans.recompute == FULL) | _repeats_experts(setting, plans) & (setting.model.moe is not None)
    return ~(around & _partial_graphs(setting, plans))


def _overlap_recompute(setting: Setting, plans: Plans) -> np.ndarray:
    repeats = (plans.recompute == FULL) | _repeats_experts(setting, plans)
    return ~(plans.overlap_expert.astype(bool) & repeats)


def may_overlap(setting: Setting, plans: Plans) -> np.ndarray:
    """Whether an exchange with experts may run beside another micro batch, shape (plans,)."""
    interleaved = np.array([name == "interleaved" for name in plans.schedule_names])[plans.schedule]
    chunks = (plans.pipeline == 1) | interleaved & (plans.virtual_pipeline > 1)
    two = setting.training.micro_batches(plans.data, plans.micro_batch) >= 2
    return (plans.expert > 1) & chunks & two


def _overlap_partner(setting: Setting, plans: Plans) -> np.ndarray:
    return ~plans.overlap_expert.astype(bool) | may_overlap(setting, plans)


ACTS: dict[str, Callable[[Plans], np.ndarray]] = {
    "virtual_pipeline": lambda plans: plans.pipeline > 1,
    "context_algorithm": lambda plans: plans.context > 1,
    "overlap_tensor": lambda plans: plans.tensor > 1,
    "sequence_parallel": lambda plans: plans.tensor > 1,
    "shard_group": lambda plans: plans.zero > 0,
    "recompute_modules": lambda plans: plans.recompute == SELECTIVE,
}
"""Plans in which a field does anything, by its name; others always may."""


def lacking(setting: Setting, plan: Plan) -> list[str]:
    """What a plan states that its release does not offer, one sentence each."""
    plans = Plans.of(plan)
    return [
        unoffered(setting, name, getattr(plan, name))
        for name in setting.framework.offers
        if not _offered_of(setting, plans, name)[0]
    ]


def offers(setting: Setting, name: str, value: Any) -> bool:
    """Whether the release has a value of a plan field: its default, or one that it offers.

    Schedules and ZeRO stages may be compared on any release.
    """
    release = setting.framework
    offered, usual = release.offers.get(name), release.defaults.get(name)
    if name in COMPARED or offered is None or value in (None, usual, *offered):
        return True
    if not isinstance(value, tuple):
        return False
    return value == tuple(usual or ()) or all(part in offered for part in value)


def unoffered(setting: Setting, name: str, value: Any) -> str:
    """Sentence about a value that a release lacks, with those that it has and their source."""
    release = setting.framework
    offered = release.offers[name]
    if isinstance(value, tuple):
        value = tuple(part for part in value if part not in offered)
    words = ", ".join(map(spelled, offered))
    why = release.source.get(OFFERS, "")
    return f"{release.name} offers {name} {words}, found {spelled(value)} ({why})"


def _offered(setting: Setting, plans: Plans) -> np.ndarray:
    mask = _every(plans)
    for name in setting.framework.offers:
        mask &= _offered_of(setting, plans, name)
    return mask


def _offered_of(setting: Setting, plans: Plans, name: str) -> np.ndarray:
    """Whether the release has the plans' values of one field, shape (plans,)."""
    if name in SHARED:
        return _every(plans) & offers(setting, name, getattr(plans.shared, name))
    codes, places = np.unique(getattr(plans, name), return_inverse=True)
    words = plans.schedule_names if name == "schedule" else Choice.get(name)
    if name == "recompute_modules":
        values: list[Any] = [modules_of(int(code)) for code in codes]
    else:
        values = [words[int(code)] for code in codes] if words else codes.tolist()
    has = np.array([offers(setting, name, value) for value in values], dtype=bool)[places]
    return has | ~ACTS[name](plans) if name in ACTS else has


RELEASE_RULES = (
    ReleaseRule(
        OFFERS,
        "a plan states values that its release offers (`offers` of its file)",
        (),
        (),
        _offered,
    ),
    ReleaseRule(
        "step_graphs",
        "a graph of the whole step needs shapes that the host knows: dense layers, experts with a fixed "
        "capacity, or fused expert kernels behind the flex dispatcher, which read token counts on the device "
        "(Megatron Core, paged stash; Transformer Engine, fused grouped MLP)",
        MEGATRON_CORE,
        ("graphs", "grouped_launches", "dispatcher"),
        _step_graphs,
    ),
    ReleaseRule(
        "fused_mlp",
        "the fused grouped MLP multiplies MXFP8 on Blackwell (Transformer Engine, "
        "NVTE_CUTEDSL_FUSED_GROUPED_MLP)",
        (),
        ("grouped_launches",),
        _fused_mlp,
    ),
    ReleaseRule(
        "flex",
        "the flex dispatcher runs on Ampere and newer GPUs of NVIDIA unless the release brings its own "
        "(Megatron Bridge, flex_dispatcher_backend.py)",
        MEGATRON_CORE,
        ("dispatcher",),
        _flex,
    ),
    ReleaseRule(
        "deepep_rack",
        "DeepEP runs on nodes, not on racks (Megatron Bridge, flex_dispatcher_backend.py)",
        MEGATRON_CORE,
        ("dispatcher", "dispatcher_library"),
        _deepep_rack,
    ),
    ReleaseRule(
        "deepep_capacity",
        "DeepEP sends as many tokens as experts get: they pad to no capacity (Megatron Core, "
        "transformer_config.py)",
        MEGATRON_CORE,
        ("dispatcher", "dispatcher_library", "fixed_capacity"),
        _deepep_capacity,
    ),
    ReleaseRule(
        GRAPHS_RECOMPUTE,
        "recomputed modules lie inside or outside graphs of parts, not around them; full recomputation needs "
        "graphs of the whole step (Megatron Core, transformer_config.py)",
        MEGATRON_CORE,
        ("graphs", "recompute", "recompute_modules"),
        _graphs_recompute,
    ),
    ReleaseRule(
        "overlap_recompute",
        "the exchange overlaps with another micro batch where neither whole layers nor whole experts are "
        "recomputed (Megatron Core, transformer_config.py: overlap_moe_expert_parallel_comm)",
        MEGATRON_CORE,
        ("overlap_expert", "recompute", "recompute_modules"),
        _overlap_recompute,
    ),
    ReleaseRule(
        OVERLAP_PARTNER,
        "an exchange between expert-parallel ranks overlaps with another micro batch: a replica needs two of "
        "them, and a pipeline interleaved chunks (Megatron Core, transformer_config.py: "
        "overlap_moe_expert_parallel_comm)",
        MEGATRON_CORE,
        ("overlap_expert", "expert", "pipeline", "virtual_pipeline", "schedule", "data", "micro_batch"),
        _overlap_partner,
    ),
)
"""All rules about releases, the plainest cause first."""

NAMES = tuple(rule.name for rule in RELEASE_RULES)


def binding(setting: Setting) -> tuple[ReleaseRule, ...]:
    """The rules that a setting's plans must meet: those of its release that the user does not set aside.

    Raises:
        UnknownNameError: the release lifts a rule that there is not.
    """
    for name in setting.framework.lifts:
        if name not in NAMES:
            raise UnknownNameError("rule", name, NAMES, f"framework {setting.framework.name}: lifts")
    return tuple(rule for rule in RELEASE_RULES if rule.name not in setting.allow and rule.binds(setting))


def runs(setting: Setting, plans: Plans, rules: Iterable[ReleaseRule]) -> np.ndarray:
    """Which plans meet all of the rules, shape (plans,)."""
    mask = _every(plans)
    for rule in rules:
        mask &= rule.holds(setting, plans)
    return mask


def check_allow(setting: Setting, where: str) -> None:
    """Refuse rules to set aside that there are not, or that bind no plan of the setting.

    Raises:
        InputError: such a rule; with the nearest, or with those that bind.
    """
    for name in setting.allow:
        if name not in NAMES:
            raise UnknownNameError("rule", name, NAMES, where)
        if not next(rule for rule in RELEASE_RULES if rule.name == name).binds(setting):
            bind = ", ".join(rule.name for rule in RELEASE_RULES if rule.binds(setting)) or "none"
            raise InputError(
                f"{name} binds no plan of {setting.framework.name}; rules that do: {bind}", where
            )


def without_default_graphs(setting: Setting, plan: Plan) -> Plan:
    """The plan, with no graphs where those of its release's default would lie inside recomputed modules."""
    broken = (rule for rule in binding(setting) if not rule.holds(setting, Plans.of(plan))[0])
    if plan.graphs is None and any(rule.name == GRAPHS_RECOMPUTE for rule in broken):
        return plan.model_copy(update={"graphs": "none"})
    return plan


def breaks(setting: Setting, plan: Plan) -> dict[str, str]:
    """The rules of its release that a plan breaks, set aside or not, with what they say."""
    plans = Plans.of(plan)
    return {
        rule.name: rule.why if rule.name != OFFERS else "; ".join(lacking(setting, plan))
        for rule in RELEASE_RULES
        if rule.binds(setting) and not rule.holds(setting, plans)[0]
    }


def insisted(setting: Setting, plan: Plan) -> dict[str, str]:
    """The rules that a plan breaks and that the user set aside, with what they say."""
    if not setting.allow:
        return {}
    return {name: why for name, why in breaks(setting, plan).items() if name in setting.allow}
