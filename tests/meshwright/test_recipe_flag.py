"""``plan --recipe``: a search that holds the partial plan of a recipe."""

from __future__ import annotations

import pytest

import meshwright as mw

QUESTION = {
    "model": "gpt-oss-120b",
    "cluster": "gb200-nvl72",
    "gpus": 64,
    "seq_len": 4096,
    "global_batch": 1280,
}


def test_a_search_holds_the_partial_plan_of_a_recipe_and_fix_changes_it():
    found = mw.plan(**QUESTION, recipe="megatron-bridge-gpt-oss-gb200", top=1)
    plan = found.result.plans.plan(0)
    assert (plan.dispatcher, plan.graphs, plan.recompute) == ("all-to-all", "none", "selective")
    assert plan.recompute_modules == ("layernorm", "moe_act")
    fixed = mw.plan(**QUESTION, recipe="megatron-bridge-gpt-oss-gb200", fix={"dispatcher": "flex"}, top=1)
    assert fixed.result.plans.plan(0).dispatcher == "flex"


def test_a_recipe_of_another_framework_is_refused():
    with pytest.raises(mw.InputError, match="is a recipe of the framework 'megatron-bridge'"):
        mw.plan(**QUESTION, framework="nemo", recipe="megatron-bridge-gpt-oss")
