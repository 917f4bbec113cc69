"""Experts in DeepGEMM's padded blocks."""

import numpy as np
import pytest

from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.price import StepPrice


def price_of(engine="vllm-0.11", model="qwen3-235b-a22b", device="h100-sxm", **pool) -> StepPrice:
    pool = {"tensor": 8, "expert": 8, "weights": "fp8", **pool}
    return StepPrice(models.get(model), usual_cluster(device), Pool(**pool), engines.get(engine))


def layer_us(tokens: float, **options) -> float:
    price = price_of(**options)
    return 1e6 * float(price.experts(np.array([tokens]))[0]) / price.model.moe_layers


def test_every_expert_of_a_rank_takes_a_block_whatever_the_batch():
    """16 experts for each of 8 ranks, 32 for each of 4: eight tokens choose 64 experts at most."""
    eight, four = (layer_us(8.0, tensor=ranks, expert=ranks) for ranks in (8, 4))
    assert 1.6 < four / eight < 2.1
    assert layer_us(64.0) < 1.3 * eight
    assert layer_us(8.0, engine="vllm-0.15") < 0.7 * eight


@pytest.mark.parametrize(("ranks", "microseconds"), [(1, 6355), (2, 3745)])
def test_padded_blocks_take_less_than_with_the_first_permutation(ranks, microseconds):
    """DeepSeek-R1's layers at 128 tokens on H100 (vllm-project/vllm, pull 13932 of 2025-02, which also copied
    all rows before and after the products)."""
    found = layer_us(128.0, model="deepseek-r1", tensor=ranks, expert=1)
    assert 0.45 * microseconds < found < microseconds


@pytest.mark.parametrize(
    ("options", "pads"),
    [
        ({}, True),
        ({"device": "b200"}, True),
        ({"engine": "vllm-0.12"}, True),
        ({"expert": 1}, False),  # cut over eight ranks
        ({"weights": "bf16"}, False),
        ({"device": "a100-sxm-80gb"}, False),  # widened to 16 bits
        ({"engine": "vllm-0.15"}, False),
        ({"engine": "sglang-0.5.9"}, False),
    ],
)
def test_versions_and_formats_that_pad(options, pads):
    assert price_of(**options).pads_experts is pads


def test_a_step_without_tokens_takes_no_time():
    assert layer_us(0.0) == 0.0
