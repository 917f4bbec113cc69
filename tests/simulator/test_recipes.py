"""Recipes: what a release sets on top of its framework."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import InputError, Notice
from core.loading import build
from hwmodels.device import devices
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.recipes import Recipe, recipes
from simulator.scenario import make_scenario
from simulator.training import predict

QUESTION = {
    "model": "gpt-oss-120b",
    "cluster": "gb200-nvl72",
    "gpus": 64,
    "workload": {"seq_len": 4096, "global_batch": 1280},
    "plan": {"expert": 64, "zero": 1},
}
MINE = {"name": "mine", "title": "ours", "framework": "megatron-bridge", "source": "our script"}


def scenario(**keys):
    return make_scenario({**QUESTION, **keys}, "mine.yaml", Path())


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_fits_its_framework_and_changes_it(name):
    recipe = recipes.get(name)
    framework = frameworks.get(recipe.framework)
    changed = recipe.applied(framework)
    assert changed != framework
    assert changed.defaults == {**framework.defaults, **recipe.plan}


def test_a_recipe_names_its_framework_and_fills_the_plan():
    given = {**MINE, "plan": {"dispatcher": "all-to-all", "overlap_expert": True}}
    asked = scenario(recipe=given)
    assert asked.setting.framework.name == "megatron-bridge"
    assert asked.setting.choices.dispatcher == "all-to-all"
    assert asked.plan.overlap_expert
    kept = scenario(recipe=given, plan={**QUESTION["plan"], "overlap_expert": False})
    assert not kept.plan.overlap_expert


def test_numbers_that_a_recipe_leaves_alone_keep_their_sources():
    framework = frameworks.get("megatron-bridge")
    assert recipes.get("megatron-bridge-gpt-oss").applied(framework).origins == framework.origins


def test_a_recipe_of_another_framework_is_refused():
    with pytest.raises(InputError, match=r"mine\.yaml: recipe: 'megatron-bridge-gpt-oss' is a recipe of"):
        scenario(recipe="megatron-bridge-gpt-oss", framework="nemo")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"plan": {"dispatcher": "carrier-pigeon"}}, "dispatcher: "),
        ({"plan": {"dispatchr": "flex"}}, "unknown key 'dispatchr'; did you mean 'dispatcher'"),
        ({"plan": {"zeros": 1}}, "unknown key 'zeros'; did you mean 'zero'"),
        ({"framework": "megatron-bride"}, "did you mean 'megatron-bridge'"),
    ],
)
def test_a_wrong_key_or_value_names_itself(given, message):
    with pytest.raises(InputError, match=message):
        build(Recipe, {**MINE, **given}, "mine.yaml").applied(frameworks.get("megatron-bridge"))


def test_more_kernels_in_graphs_never_wait_longer_for_the_host(make_setting):
    plans = Plans.of(Plan(data=16, expert=8, zero=1))
    slow = {"devices": 16, "framework": "megatron-bridge", "host": {"seconds_per_kernel": 1e-3}}
    waits = [
        predict(make_setting("deepseek-v2-lite", "dgx-h100", graphs=graphs, **slow), plans).seconds["launch"][
            0
        ]
        for graphs in ("none", "router", "layer", "step")
    ]
    # No run measured graphs of layers or steps on Hopper: they are expected to gain what the router's do.
    last_bits = 1.0 - 1e-12
    assert waits[0] > waits[1] >= waits[2] * last_bits and waits[2] >= waits[3] * last_bits


def test_a_recipe_for_another_device_or_model_is_taken_with_a_warning():
    with pytest.warns(Notice, match=r"mine\.yaml: recipe: .* not shipped for gb200 \(it is for b200\)"):
        asked = scenario(recipe="megatron-bridge-qwen3-30b-b200", model="qwen3-30b-a3b")
    assert asked.setting.choices.graphs == "router"
    with pytest.warns(Notice, match=r"gpt-oss-120b \(it is for qwen3-30b-a3b\) and gb200"):
        scenario(recipe="megatron-bridge-qwen3-30b-b200")
    assert scenario(recipe="megatron-bridge-gpt-oss-gb200").setting.choices.dispatcher == "all-to-all"


@pytest.mark.parametrize("name", recipes.names())
def test_recipes_name_models_and_devices_of_the_catalogues(name):
    recipe = recipes.get(name)
    assert set(recipe.models) <= set(models.names())
    assert set(recipe.devices) <= set(devices.names())
