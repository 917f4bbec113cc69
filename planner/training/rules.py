"""Rules that a candidate must satisfy, each with its reason; add one by adding an entry to ``STRUCTURE``.

Rules of feasibility are in ``simulator.rules``, which also checks plans that a user gives; here each gets the
fields that it reads. The other rules prune the search. ``structure`` adds rules of the release where levers
have one value; where they vary, ``lever_space`` chooses by the same rules.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from planner.training.candidates import CandidateRule, Candidates
from planner.training.offload import fits_tiers
from planner.training.space import Space
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.rules import OVERLAP_PARTNER, ReleaseRule, runs
from simulator.rules import RULES as POSSIBLE
from simulator.training.memory import StageMemory, least_memory, memory

DEGREES = ("tensor", "pipeline", "context")
GRID = (*DEGREES, "expert", "expert_tensor")
SHAPE = (*GRID, "micro_batch", "virtual_pipeline", "schedule")
STATE = ("zero", "shard_group")
ROUNDING = 1e-9
"""Relative rounding error between two sums of the same bytes in different order."""


def _possible(name: str) -> Callable[[Candidates], np.ndarray]:
    """A rule of ``simulator.rules`` over candidates."""
    holds = next(rule.holds for rule in POSSIBLE if rule.name == name)
    return lambda c: holds(c.space.setting, c.plans)


def _constraint(c: Candidates) -> np.ndarray:
    constraints = c.space.constraints
    fixed, limit = constraints.fixed.get("data", c.data), constraints.limits.get("data", c.space.devices)
    return (c.data == fixed) & (c.data <= limit)


def _nvlink(c: Candidates) -> np.ndarray:
    if "tensor" in c.space.constraints.fixed:
        return np.ones(c.count, bool)
    return c.space.domain % c["tensor"] == 0


def _sequence_parallel(c: Candidates) -> np.ndarray:
    return ~c.sequence_parallel | (c["tensor"] > 1)


def _expert_grid(c: Candidates) -> np.ndarray:
    ranks, inside = c["tensor"] * c["context"] * c.data, c["expert"] * c["expert_tensor"]
    return (ranks % inside == 0) & (c["tensor"] % c["expert_tensor"] == 0)


def _shard_group(c: Candidates) -> np.ndarray:
    group = c["shard_group"]
    keep = (group == 0) | (c["context"] * c.data % np.maximum(group, 1) == 0)
    if "shard_group" in c.space.constraints.fixed:
        return keep
    return keep & ((group == 0) | (group * c["tensor"] == c.space.domain))


def _first(c: Candidates, name: str) -> np.ndarray:
    """Whether a field has the simplest value that the search allows."""
    return c[name] == c.space.codes(name)[0]


def _one_stage(c: Candidates) -> np.ndarray:
    return (c["pipeline"] > 1) | _first(c, "schedule")


def _one_slice(c: Candidates) -> np.ndarray:
    return (c["context"] > 1) | _first(c, "context_algorithm")


def _one_tensor_rank(c: Candidates) -> np.ndarray:
    return (c["tensor"] > 1) | _first(c, "overlap_tensor")


def _unsharded(c: Candidates) -> np.ndarray:
    ranks = c["context"] * c.data
    if c.space.setting.model.moe:
        ranks = np.maximum(ranks, c["tensor"] * ranks // (c["expert"] * c["expert_tensor"]))
    sharded = (c["zero"] > 0) & (ranks > 1)
    grouped = sharded & (c["shard_group"] < ranks)
    return (sharded | _first(c, "zero")) & (grouped | _first(c, "shard_group"))


def plan_memory(c: Candidates) -> StageMemory:
    """Memory of candidates, without their times."""
    setting, plans = c.space.setting, c.plans
    stages = Stages.of(setting, plans)
    return memory(setting, plans, stages, parameters(setting, plans, stages))


def _memory(c: Candidates) -> np.ndarray:
    usage = plan_memory(c)
    return (usage.peak <= c.space.usable_bytes) & fits_tiers(c.space.setting.cluster, usage)


def _needed_off_device(c: Candidates) -> np.ndarray:
    """Whether the placement before would not fit; the first placement has none before it."""
    keep = np.ones(c.count, bool)
    later = np.flatnonzero(c["policy"] > 0)
    if len(later):
        others = c.take(later)
        before = {**others.columns, "policy": others["policy"] - 1}
        keep[later] = ~_memory(Candidates(c.space, before, others.count))
    return keep


def _least_memory(c: Candidates) -> np.ndarray:
    setting, plans = c.space.setting, c.plans
    stages = Stages.of(setting, plans)
    leaving = ("gradients", "optimizer") if len(c.space.policies) > 1 else ()
    least = least_memory(setting, plans, stages, parameters(setting, plans, stages), leaving)
    return least <= c.space.usable_bytes * (1 + ROUNDING)


STRUCTURE: tuple[CandidateRule, ...] = (
    CandidateRule(
        "devices",
        "tensor x pipeline x context must divide the devices of the job",
        DEGREES,
        _possible("devices"),
    ),
    CandidateRule(
        "constraint", "the data-parallel degree that follows must be the one asked for", DEGREES, _constraint
    ),
    CandidateRule(
        "nvlink_domain",
        "tensor stays inside an NVLink domain: it communicates several times a layer, and NICs are ten times "
        "slower than NVLinks; fix tensor to try it all the same",
        ("tensor",),
        _nvlink,
    ),
    CandidateRule("heads", "tensor must divide the attention heads", ("tensor",), _possible("heads")),
    CandidateRule(
        "heads",
        "with Ulysses, tensor x context must divide the attention heads",
        ("tensor", "context", "context_algorithm"),
        _possible("heads"),
    ),
    CandidateRule(
        "context",
        "with usp, context_heads must divide context; tensor x context must divide the heads of linear "
        "attention, unless its states are exchanged",
        ("tensor", "context", "context_algorithm"),
        _possible("context"),
    ),
    CandidateRule(
        "kv_heads",
        "tensor must divide the key-value heads or be a multiple of them",
        ("tensor",),
        _possible("kv_heads"),
    ),
    CandidateRule(
        "feed_forward",
        "tensor must divide the inner width of the MLP",
        ("tensor",),
        _possible("feed_forward"),
    ),
    CandidateRule(
        "sequence_parallel", "sequence parallelism needs tensor > 1", ("tensor",), _sequence_parallel
    ),
    CandidateRule(
        "sequence",
        "context, and with sequence parallelism context x tensor, must divide the sequence",
        ("tensor", "context"),
        _possible("sequence"),
    ),
    CandidateRule(
        "duplicate",
        "without context parallelism no algorithm is used",
        ("context", "context_algorithm"),
        _one_slice,
    ),
    CandidateRule(
        "duplicate",
        "without tensor parallelism there is no traffic to overlap",
        ("tensor", "overlap_tensor"),
        _one_tensor_rank,
    ),
    CandidateRule(
        "experts",
        "expert must divide the experts and expert_tensor their width",
        ("expert", "expert_tensor"),
        _possible("experts"),
    ),
    CandidateRule(
        "expert_grid",
        "expert x expert_tensor must divide tensor x context x data, and expert_tensor tensor",
        GRID,
        _expert_grid,
    ),
    CandidateRule(
        "batch",
        "data x micro_batch must divide the global batch",
        (*DEGREES, "micro_batch"),
        _possible("batch"),
    ),
    CandidateRule(
        "layers",
        "layers must divide over stages and chunks; the first and last chunk may be smaller",
        ("pipeline", "virtual_pipeline"),
        _possible("layers"),
    ),
    CandidateRule(
        "schedule",
        "the schedule must accept the numbers of stages, micro batches and chunks",
        (*DEGREES, "micro_batch", "virtual_pipeline", "schedule"),
        _possible("schedule"),
    ),
    CandidateRule(
        "duplicate", "with one stage all schedules do the same", ("pipeline", "schedule"), _one_stage
    ),
    CandidateRule(
        "shard_group",
        "a shard group is all data-parallel ranks or those of one NVLink domain, and must divide them",
        (*DEGREES, "shard_group"),
        _shard_group,
    ),
    CandidateRule(
        "duplicate",
        "sharding over one rank, or over a group as large as all ranks, is a simpler plan again",
        (*GRID, *STATE),
        _unsharded,
    ),
)
"""Rules about shapes. Of rules that run at the same point, the earlier one gets the count."""


def structure(space: Space) -> tuple[CandidateRule, ...]:
    """The rules about shapes, and those of the release that can remove candidates of a space."""
    levers = space.levers
    if levers is None:
        return STRUCTURE
    overlaps = levers.values["overlap_expert"] == (True,)
    broken = [
        rule
        for rule in levers.rules
        if (rule.name == OVERLAP_PARTNER and overlaps)
        or (rule.of_levers and not levers.varies and not _always(space, rule))
    ]
    return (*STRUCTURE, *(_of_release(rule) for rule in broken))


def _always(space: Space, rule: ReleaseRule) -> bool:
    """Whether the levers of a space, which have one value each, meet a rule whatever is recomputed."""
    codes = space.codes("recompute")
    return bool(runs(space.setting, Candidates(space, {"recompute": codes}, len(codes)).plans, [rule]).all())


def _of_release(rule: ReleaseRule) -> CandidateRule:
    """A rule of the release over candidates."""
    return CandidateRule(
        rule.name,
        rule.why,
        (*SHAPE, "recompute"),
        lambda candidates: runs(candidates.space.setting, candidates.plans, [rule]),
    )


MEMORY = "memory"

HOLDS_ALL = (
    "the fullest device must hold parameters, gradients, optimizer state, activations and buffers, and leave "
    "the headroom free"
)

RULES: tuple[CandidateRule, ...] = (
    *STRUCTURE,
    # Before sharding branches: reject candidates that fit with no kind of sharding.
    CandidateRule(MEMORY, HOLDS_ALL, (*SHAPE, "recompute"), _least_memory),
    CandidateRule(MEMORY, HOLDS_ALL, (*SHAPE, *STATE, "recompute"), _memory),
)
"""All rules; those of memory are the last, and the only ones that depend on more than the cluster's shape."""

PLACED = (*SHAPE, *STATE, "recompute", "policy")
PLACEMENT_RULES: tuple[CandidateRule, ...] = (
    *RULES[:-1],
    CandidateRule(MEMORY, HOLDS_ALL, PLACED, _memory),
    CandidateRule(
        "duplicate",
        "state leaves the device only where the plan does not fit with less of it elsewhere",
        PLACED,
        _needed_off_device,
    ),
)
"""Rules of a search over placements of state: those of memory read the placement."""
