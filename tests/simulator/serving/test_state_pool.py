"""States of linear layers in memory: what SGLang keeps apart for them, and the sequences that it admits."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.loading import build
from hwmodels.cluster import clusters
from simulator.models import models
from simulator.serving.question.deployment import Pool
from simulator.serving.question.options import EngineOptions
from simulator.serving.steps.costs import allowed_options, engine_of, options_of
from simulator.serving.steps.memory import admitted, memory, state_bytes
from simulator.serving.steps.price import StepPrice

CLUSTER = clusters.get("dgx-h100")
STATES = 24 * (4 * 32 * 128 * 128 + 2 * (2 * 16 * 128 + 32 * 128) * 3)
"""Qwen3.5-9B: 24 layers of 32 states of 128 x 128 in 32 bits, and three inputs of the convolution in 16."""


def replica(model="qwen3.5-9b", engine="sglang-0.5.9", **stated):
    pool = build(Pool, {"engine": engine, **stated}, "pool")
    preset = engine_of(engine, Path(), "engine")
    return models.get(model), CLUSTER, pool, preset


def limits(*asked):
    model, cluster, pool, preset = asked
    return allowed_options(options_of(pool, cluster.device), model, cluster, pool, preset)


def footprint(*asked):
    price = StepPrice(*asked)
    options = options_of(asked[2], CLUSTER.device)
    return price, memory(price, options.token_budget, options.max_sequences, options.memory_share)


def test_a_state_of_qwen_has_its_heads_and_the_convolution_s_inputs():
    assert state_bytes(StepPrice(*replica())) == STATES
    assert state_bytes(StepPrice(*replica(tensor=2))) == STATES / 2
    assert state_bytes(StepPrice(*replica("llama3.1-8b"))) == 0


def test_states_take_nine_bytes_for_ten_of_kv_and_three_a_sequence():
    price, held = footprint(*replica())
    assert held.states == pytest.approx(0.9 * held.kv_bytes)
    most = limits(*replica()).max_sequences
    assert (
        most == admitted(price, held, build(EngineOptions, {}, "options")) == int(held.states // STATES) // 3
    )
    # By Little's law 132 run at once in the mean, with start and end (gpustack, docs/performance-lab).
    assert 132 < limits(*replica()).max_sequences < 1.3 * 132


def test_without_the_prefix_cache_each_sequence_has_one_state():
    cached, alone = (
        limits(*replica(options={"prefix_caching": caches})).max_sequences for caches in (True, False)
    )
    assert alone == pytest.approx(3 * cached, abs=2)


@pytest.mark.parametrize(("ahead", "slots"), [(True, 5), (False, 4)])
def test_buffers_of_a_sequence_take_two_states_more_where_steps_are_scheduled_ahead(ahead, slots):
    """SGLang: MAMBA_CACHE_V2_ADDITIONAL_RATIO_OVERLAP and _NO_OVERLAP, with extra_buffer."""
    price, held = footprint(*replica())
    options = build(EngineOptions, {"state_buffers": True, "asynchronous": ahead}, "options")
    assert admitted(price, held, options) == int(held.states // STATES) // slots
    alone = build(EngineOptions, {"state_buffers": True, "prefix_caching": False}, "options")
    assert admitted(price, held, alone) == int(held.states // STATES)


def test_a_stated_limit_below_that_of_states_stays():
    assert limits(*replica(options={"max_sequences": 16})).max_sequences == 16


@pytest.mark.parametrize(("model", "engine"), [("llama3.1-8b", "sglang-0.5.9"), ("qwen3.5-9b", "vllm-0.19")])
def test_other_models_and_engines_keep_their_limits(model, engine):
    asked = replica(model, engine)
    assert limits(*asked) == options_of(asked[2], CLUSTER.device)
    assert footprint(*asked)[1].states == 0


def test_states_alone_bound_the_sequences_of_a_model_without_keys():
    """Qwen3.5-9B with linear layers alone: as many sequences as states fit, and any number of tokens."""
    pure = models.get("qwen3.5-9b").model_copy(update={"attention_pattern": ("linear",)})
    asked = (pure, *replica(engine="vllm-0.18", options={"max_sequences": 4096})[1:])
    price, held = footprint(*asked)
    assert held.kv_token == 0
    assert held.kv_tokens > 1e9
    most = limits(*asked).max_sequences
    assert most < 4096
    assert most * state_bytes(price) <= held.kv_bytes < (most + 1) * state_bytes(price)
    assert not limits(*asked).prefix_caching
