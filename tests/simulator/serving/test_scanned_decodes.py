"""Decodes beside prompts in layers of the delta rule."""

import numpy as np
import pytest

from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.table import IterationTable

PROMPT = (340, 0)
SEQUENCES = 440


def price_of(engine="vllm-0.19", model="qwen3.5-9b", device="h100-sxm", **pool) -> StepPrice:
    return StepPrice(models.get(model), usual_cluster(device), Pool(**pool), engines.get(engine))


def table_of(**options) -> IterationTable:
    return IterationTable(price_of(**options), 8192, 512, 4096)


@pytest.fixture(scope="module")
def scanning():
    return table_of()


@pytest.fixture(scope="module")
def splitting():
    return table_of(engine="vllm-0.26")


def test_a_prompt_slows_all_decodes_of_its_step(scanning, splitting):
    """Qwen3.5-397B on eight B200: a step with a prompt takes 6 times a decode step (vllm-project/vllm,
    issue 44806); until pull 44700 all sequences run in the chunked scan."""
    keys = SEQUENCES * 480
    alone, beside = (scanning.step(prefills, SEQUENCES, keys) for prefills in ([], [PROMPT]))
    assert 1.8 < beside / alone < 6
    assert splitting.step([], SEQUENCES, keys) == alone
    assert splitting.step([PROMPT], SEQUENCES, keys) < 1.3 * alone


def test_steps_of_one_kind_take_as_long_as_before(scanning, splitting):
    assert scanning.step([PROMPT], 0, 0) == splitting.step([PROMPT], 0, 0)
    assert scanning.step([], 8, 8000) == splitting.step([], 8, 8000)


def test_a_scan_of_single_tokens_takes_twice_a_step_of_states():
    """953 decodes take 2.1 times as long among prompts (pull 44700: 4,362 us with 7,239 tokens of prompts,
    whose own time is about 410, against 1,844); states are gathered and scattered in addition."""
    price = price_of()
    kernels, shape = price.prices.kernels, (64, 128, 128)
    scanned = kernels.linear_attention(953, 1, *shape, 64, 16, True, rule="gdn")
    stepped = kernels.linear_decode(953, *shape, rule="gdn")
    assert 1.6 < float(scanned) / float(stepped) < 2.6


def test_only_layers_of_the_delta_rule_scan_decodes():
    assert price_of().scans_decodes
    assert not price_of(model="llama3.1-8b").scans_decodes
    assert not price_of(engine="sglang-0.5.12").scans_decodes
    assert not price_of(model="nemotron-h-8b").scans_decodes


def test_the_array_interface_agrees_with_the_scalar_one(scanning):
    mixed = scanning.price.decodes_in_prefill(np.array([3.0, 200.0]), np.array([900.0, 900.0]))
    table = [scanning._decode_s(count, 900 * count)[1] for count in (3, 200)]
    np.testing.assert_allclose(table, mixed, rtol=0.01)
