"""Each rule removes what it is for, and says so."""

from __future__ import annotations

import pytest

from planner.training.candidates import Enumeration
from planner.training.constraints import Constraints
from planner.training.rules import RULES
from planner.training.space import Space
from simulator.rules import RULES as POSSIBLE
from simulator.rules import check

EXAMPLES = {
    "devices": (12, {}, [], []),
    "constraint": (16, {}, ["data=4"], []),
    "nvlink_domain": (16, {}, [], []),
    "heads": (16, {"heads": 6, "hidden": 768}, [], []),
    "context": (16, {}, ["context_algorithm=usp", "context_heads=4"], []),
    "kv_heads": (16, {"heads": 24, "kv_heads": 3, "hidden": 3072}, [], []),
    "feed_forward": (16, {"feed_forward": 4098}, [], []),
    "sequence_parallel": (16, {}, ["sequence_parallel=on"], []),
    "sequence": (16, {}, ["context=3"], []),
    "duplicate": (16, {}, [], []),
    "experts": (16, {"experts": True}, ["expert=3"], []),
    "expert_grid": (16, {"experts": True}, [], []),
    "batch": (16, {}, [], []),
    "layers": (16, {}, [], []),
    "schedule": (16, {}, [], []),
    "shard_group": (16, {}, [], []),
    "memory": (16, {}, [], []),
}


def removed_by(setting, devices, constraints):
    enumeration = Enumeration(Space.of(setting, devices, constraints), RULES)
    for _ in enumeration.blocks():
        pass
    return enumeration.removed


@pytest.mark.parametrize("name", list(dict.fromkeys(rule.name for rule in RULES)))
def test_each_rule_removes_something_somewhere(ask, name):
    devices, model, fix, limit = EXAMPLES[name]
    constraints = Constraints.parse(fix, [*limit, "micro_batch=4", "virtual_pipeline=3"])
    assert removed_by(ask(**model), devices, constraints)[name] > 0


def test_every_rule_that_judges_a_users_plan_judges_candidates():
    assert {rule.name for rule in POSSIBLE} <= {rule.name for rule in RULES}


def test_survivors_keep_every_rule_of_plans(ask, survivors):
    space = Space.of(ask(), 16, Constraints.parse(limit=["virtual_pipeline=2"]))
    for plan in survivors(space)[::7]:
        check(space.setting, plan)


def test_tensor_leaves_the_nvlink_domain_only_when_fixed(ask, survivors):
    space = Space.of(ask(), 16, Constraints.parse(limit=["virtual_pipeline=1"]))
    assert max(plan.tensor for plan in survivors(space)) == 8
    fixed = Space.of(ask(), 16, Constraints.parse(["tensor=16"], ["virtual_pipeline=1"]))
    assert {plan.tensor for plan in survivors(fixed)} == {16}


def test_a_shard_group_is_what_tensor_leaves_of_a_node(ask, survivors):
    space = Space.of(ask(), 16, Constraints.parse(limit=["virtual_pipeline=1", "micro_batch=1"]))
    groups = {(plan.tensor, plan.shard_group) for plan in survivors(space) if plan.shard_group}
    assert groups == {(1, 8), (2, 4), (4, 2)}


def test_rules_read_fields_that_branch():
    space_fields = {
        "tensor",
        "pipeline",
        "context",
        "context_algorithm",
        "expert",
        "expert_tensor",
        "micro_batch",
    }
    space_fields |= {"virtual_pipeline", "schedule", "zero", "shard_group", "recompute", "overlap_tensor"}
    assert {name for rule in RULES for name in rule.reads} == space_fields
