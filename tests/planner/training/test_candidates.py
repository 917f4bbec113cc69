"""The array enumeration against loops over every combination, and what it counts."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.training import candidates
from planner.training.candidates import Enumeration, end_layers
from planner.training.constraints import Constraints
from planner.training.rules import RULES, STRUCTURE
from planner.training.space import Space
from simulator.layout.parameters import parameters
from simulator.layout.stages import Stages
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.training.memory import memory


def by_hand(space):
    """Every valid plan, by plain loops that share nothing with the rules but the numbers."""
    model, training = space.setting.model, space.setting.training
    devices, node = space.devices, space.setting.cluster.devices_per_node
    names = list(space.values)
    found = []
    for values in product(*space.values.values()):
        v = dict(zip(names, values, strict=True))
        t, p, c, chunks, zero = v["tensor"], v["pipeline"], v["context"], v["virtual_pipeline"], v["zero"]
        if (
            devices % (t * p * c)
            or model.heads % t
            or model.kv_heads % t
            or model.feed_forward % t
            or node % t
        ):
            continue
        data = devices // (t * p * c)
        if training.global_batch % (data * v["micro_batch"]) or training.seq_len % (t * c):
            continue
        steps = training.global_batch // (data * v["micro_batch"])
        if c == 1 and v["context_algorithm"] != "ring":
            continue
        if v["context_algorithm"] == "ulysses" and model.heads % (t * c):
            continue
        if chunks > 1 and (p == 1 or v["schedule"] not in ("interleaved", "breadth-first")):
            continue
        if v["schedule"] in ("interleaved", "breadth-first") and chunks == 1:
            continue
        if (v["schedule"] == "interleaved" and steps % p) or (p == 1 and v["schedule"] != "1f1b"):
            continue
        ends = 0
        if model.layers % (p * chunks):
            whole = chunks * (model.layers // (p * chunks) + 1)
            missing = p * whole - model.layers
            if missing > 2 * whole // chunks or whole - (missing + 1) // 2 <= 0 or p == 1:
                continue
            ends = (whole - missing // 2, whole - (missing + 1) // 2)
        e, et = v["expert"], v["expert_tensor"]
        if (t * c * data) % (e * et) or t % et:
            continue
        ranks = max(c * data, t * c * data // (e * et) if model.moe else 0)
        group = v["shard_group"]
        if zero and ranks == 1:
            continue
        if group and (not zero or group >= ranks or (c * data) % group or group * t != node):
            continue
        first, last = ends or (0, 0)
        found.append(
            Plan(**v, data=data, sequence_parallel=t > 1, first_stage_layers=first, last_stage_layers=last)
        )
    plans = Plans.of(found)
    stages = Stages.of(space.setting, plans)
    peak = memory(space.setting, plans, stages, parameters(space.setting, plans, stages)).peak
    fits = peak <= space.setting.cluster.device.memory_bytes
    return [plan for plan, yes in zip(found, fits, strict=True) if yes], int(np.count_nonzero(~fits))


@pytest.mark.parametrize(
    ("devices", "model", "limit"),
    [
        (16, {}, ["micro_batch=4", "virtual_pipeline=3"]),
        (16, {"layers": 10, "kv_heads": 8}, ["micro_batch=2", "virtual_pipeline=3", "tensor=8"]),
        (
            16,
            {"experts": True},
            ["micro_batch=1", "virtual_pipeline=2", "tensor=4", "expert_tensor=2", "zero=1"],
        ),
    ],
)
def test_equals_plain_loops_over_every_combination(ask, devices, model, limit):
    space = Space.of(ask(seq_len=4096, **model), devices, Constraints.parse(limit=limit))
    expected, too_big = by_hand(space)
    enumeration = Enumeration(space, RULES)
    found = [plan for block in enumeration.blocks() for plan in block.plans]
    assert found == expected
    assert sum(enumeration.removed.values()) + len(found) == space.candidates
    late = Enumeration(space, [*STRUCTURE, RULES[-1]])
    assert [plan for block in late.blocks() for plan in block.plans] == expected
    assert late.removed["memory"] == too_big > 0


@settings(max_examples=25, deadline=None)
@given(
    devices=st.sampled_from([1, 2, 6, 8, 16, 40]),
    layers=st.integers(1, 13),
    heads=st.sampled_from([1, 6, 8, 15]),
    batch=st.integers(1, 24),
    experts=st.booleans(),
)
def test_every_candidate_is_removed_once_or_kept(ask, devices, layers, heads, batch, experts):
    setting = ask(batch=batch, seq_len=1024, experts=experts, layers=layers, heads=heads, hidden=128 * heads)
    enumeration = Enumeration(Space.of(setting, devices), STRUCTURE)
    blocks = list(enumeration.blocks())
    assert (
        sum(block.count for block in blocks) + sum(enumeration.removed.values())
        == enumeration.space.candidates
    )
    for block in blocks:
        assert np.all(block.plans.devices == devices)
        assert all(plan.devices == devices for plan in block.take(slice(0, 5)).plans)


def test_blocks_of_any_size_give_the_same_plans(ask, monkeypatch, survivors):
    space = Space.of(ask(), 16, Constraints.parse(limit=["virtual_pipeline=2"]))
    whole = survivors(space)
    monkeypatch.setattr(candidates, "BLOCK", 50)
    assert survivors(space) == whole


@pytest.mark.parametrize("field", ["tensor=4", "pipeline=2", "micro_batch=2", "recompute=full", "zero=1"])
def test_fixing_a_field_keeps_the_plans_that_have_the_value(ask, field, survivors):
    name, _, text = field.partition("=")
    setting, narrow = ask(), ["virtual_pipeline=2"]
    everything = survivors(Space.of(setting, 16, Constraints.parse(limit=narrow)))
    fixed = survivors(Space.of(setting, 16, Constraints.parse([field], narrow)))
    chosen = [plan for plan in everything if str(getattr(plan, name)) == text]
    # With zero fixed above 0, plans with nothing to shard are no duplicates of a plan that is allowed.
    assert [plan for plan in fixed if plan.data * plan.context > 1 or name != "zero"] == chosen
    assert 0 < len(chosen) < len(everything)


def test_a_limit_keeps_the_plans_below_it(ask, survivors):
    setting, narrow = ask(), ["virtual_pipeline=2"]
    everything = survivors(Space.of(setting, 16, Constraints.parse(limit=narrow)))
    limited = survivors(Space.of(setting, 16, Constraints.parse(limit=[*narrow, "data=4"])))
    assert limited == [plan for plan in everything if plan.data <= 4]
    assert 0 < len(limited) < len(everything)


def test_the_layers_of_llama_3_on_16_stages_of_8_chunks():
    first, last = end_layers(126, np.array([16]), np.array([8]))
    assert (first[0], last[0]) == (7, 7)


def test_the_loss_counts_as_the_layers_that_it_weighs(ask):
    setting = replace(ask(), model=models.get("kimi-k2"))
    assert 4 in Space.of(setting, 16).values["virtual_pipeline"]
    first, last = end_layers(61, np.array([4]), np.array([4]))
    assert (first[0], last[0]) == (15, 14)


@given(layers=st.integers(1, 200), pipeline=st.integers(1, 40), chunks=st.integers(1, 8))
def test_uneven_stages_hold_all_layers(layers, pipeline, chunks):
    first, last = (int(n[0]) for n in end_layers(layers, np.array([pipeline]), np.array([chunks])))
    if first == last == 0:
        return
    between = chunks * -(-layers // (pipeline * chunks))
    assert first + last + (pipeline - 2) * between == layers
    assert 0 < last <= first <= between
