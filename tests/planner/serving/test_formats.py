"""Other number formats beside an answer."""

import numpy as np
import pytest

from meshwright.questions.serving import serving_question
from planner.serving.search import search_serving
from planner.serving.shapes import choices, make_shape

NONE = dict.fromkeys(("share", "engine", "objective"))
ASKED = {"model": "llama3.1-70b", "cluster": "dgx-h100", "gpus": 32, "isl": 2048, "osl": 256, "rate": 24.0}
TARGETS = {"ttft": 1.0, "tpot": 0.05}


@pytest.mark.slow
def test_the_price_told_is_the_price_asked():
    """Fewer devices carry the rate in fp8: as many as the question gets where the layout is fixed."""
    question = serving_question(None, {**NONE, **ASKED, **TARGETS}, {}, {})
    search = search_serving(question, 3, formats=True)
    told = [variant for variant in search.variants if variant.weights == "fp8" and variant.plan.meets]
    assert told
    for variant in told:
        (group,) = variant.plan.groups
        degrees = {name: getattr(group.shape.pool, name) for name in ("tensor", "data", "pipeline", "expert")}
        fixed = {**degrees, "weights": "fp8", **({"kv": variant.kv} if variant.kv else {})}
        asked = serving_question(None, {**NONE, **ASKED, **TARGETS, "objective": "cost"}, fixed, {})
        mixed = [plan for plan in search_serving(asked, 20).plans if len(plan.groups) == 1]
        assert mixed[0].usd_per_million == pytest.approx(variant.plan.usd_per_million, rel=1e-6)


def test_limits_are_the_best_of_as_few_replicas_as_carry_the_rate():
    """Two replicas carry it with steps of 8,192 tokens, and with the 2,048 that are best for four do not."""
    model = {"model": "llama3.1-70b", "cluster": "dgx-b200", "gpus": 8, "isl": 2000, "osl": 300}
    asked = {**NONE, **model, "ttft": 0.5, "tpot": 0.1, "engine": "vllm-0.11", "objective": "cost"}
    fixed = {"tensor": 2, "data": 1, "pipeline": 1, "expert": 1, "weights": "bf16", "kv": "fp8"}

    def limits(rate):
        plans = search_serving(serving_question(None, {**asked, "rate": rate}, fixed, {}), 20).plans
        (group,) = next(plan.groups for plan in plans if len(plan.groups) == 1)
        return group.replicas, group.budget

    assert limits(9.657) == (2, 8192)
    assert limits(19.0) == (4, 2048)


@pytest.mark.slow
def test_narrower_kv_holds_more_of_repeated_prompts():
    """A layout's sequence limit, chosen for the checkpoint's KV, is no limit of a narrower one."""
    agents = {**ASKED, "gpus": 16, "isl": 16_000, "rate": 2.0, "prefix": "94%", "ttft": 2.0, "tpot": 0.05}
    search = search_serving(serving_question(None, {**NONE, **agents}, {}, {}), 3, formats=True)
    best = search.plans[0].goodput / search.plans[0].groups[0].replicas
    told = [variant.plan for variant in search.variants if variant.kv == "fp8"]
    assert told and all(plan.goodput / plan.groups[0].replicas > best for plan in told)


@pytest.mark.parametrize(("cluster", "stored"), [("t4-8", "fp16"), ("dgx-h100", "bf16")])
def test_weights_of_16_bits_are_in_the_format_that_the_device_computes_in(cluster, stored):
    asked = {**NONE, "model": "llama2-7b", "cluster": cluster, "gpus": 2, "isl": 500, "osl": 150, "rate": 0.5}
    search = search_serving(serving_question(None, {**asked, "ttft": 5.0, "tpot": 0.2}, {}, {}), 3)
    assert {group.shape.pool.weights for plan in search.plans for group in plan.groups} == {stored}


@pytest.mark.parametrize("model", ["llama3.1-8b", "deepseek-v3"])
def test_products_of_ranks_are_those_of_any_format_of_kv(model):
    asked = {**NONE, **ASKED, **TARGETS, "model": model, "cluster": "dgx-h200", "gpus": 8}
    question = serving_question(None, asked, {"tensor": 8, "pipeline": 1, "token_budget": 2048}, {})
    fields, tables = next(choices(question)), {}
    wide = make_shape(question, fields, tables).table
    taken, alone = (make_shape(question, {**fields, "kv": "fp8"}, given).table for given in (tables, {}))
    assert taken.inside_s is wide.inside_s
    for name in ("tokens_s", "head_s", "padded_s"):
        np.testing.assert_array_equal(getattr(taken, name), getattr(alone, name))
    np.testing.assert_array_equal(taken.decodes.z, alone.decodes.z)
    assert not np.array_equal(taken.decodes.z, wide.decodes.z)
