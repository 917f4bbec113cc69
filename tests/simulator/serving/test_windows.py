"""KV of sliding layers: all of it, a share, or a window whose older blocks are freed."""

from pathlib import Path

import pytest

from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.replica.guards import guarding
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steps.memory import memory, window_of
from simulator.serving.steps.price import StepPrice

LAYER = 2 * 8 * 64 * 2.0
"""Bytes of a token in one layer of gpt-oss: keys and values of 8 heads of 64, in 16 bits."""


def price(engine: str, model: str = "gpt-oss-120b", **pool) -> StepPrice:
    return StepPrice(models.get(model), usual_cluster("h100-sxm"), Pool(**pool), engines.get(engine))


@pytest.mark.parametrize(
    ("engine", "layers"),
    [("tensorrt-llm-1.2", 36), ("vllm-0.6", 36), ("sglang-0.5.12", 18 * 1.8), ("vllm-0.19", 18)],
)
def test_a_token_of_gpt_oss_takes_what_its_engine_keeps(engine, layers):
    assert memory(price(engine), 8192, 256).kv_token == pytest.approx(layers * LAYER)


def test_groups_of_sliding_layers_are_padded_to_the_group_of_full_ones():
    """Gemma 3 has 10 full layers and 52 sliding ones, which take 6 groups of 10 (hybrid_kv_cache_manager)."""
    window = window_of(price("vllm-0.19", "gemma3-27b", tensor=2))
    assert (window.tokens, window.ratio) == (1024, 6)


def test_models_with_one_kind_of_layer_and_pools_that_send_kv_have_no_window():
    assert window_of(price("vllm-0.19", "llama3.1-8b")).ratio == 0
    assert window_of(price("vllm-0.19", "mistral-7b")).ratio == 0
    assert window_of(price("vllm-0.19", role="decode")).ratio == 0
    assert memory(price("vllm-0.19", role="decode"), 8192, 256).kv_token == pytest.approx(36 * LAYER)


@pytest.mark.parametrize("prefix_caching", [False, True])
def test_sequences_hold_a_window_and_no_more_than_their_tokens(prefix_caching):
    """A prompt of 256 tokens takes 16 blocks, and 8 of the window: 400 hold 16 of them; short ones all."""
    data = {
        "model": "gpt-oss-20b",
        "cluster": "h100-sxm",
        "workload": {
            "kind": "serving",
            "requests": 24,
            "arrivals": {"kind": "burst"},
            "input": 256,
            "output": 64,
        },
        "deployment": {
            "engine": "vllm-0.19",
            "options": {"kv_blocks": 400, "max_context": 1024, "prefix_caching": prefix_caching},
        },
    }
    with guarding():
        columns = serve(make_serving(data, "test", Path())).records.columns()
    together = (columns["first_s"] < columns["last_s"].min()).sum()
    assert together == 400 // (256 // 16 + 8)
    short = make_serving(
        {**data, "workload": {**data["workload"], "input": 32, "output": 16}}, "test", Path()
    )
    columns = serve(short).records.columns()
    assert columns["scheduled_s"].max() == columns["scheduled_s"].min()


def test_the_longest_request_leaves_room_for_its_window():
    setting = make_serving(
        {
            "model": "gpt-oss-20b",
            "cluster": "h100-sxm",
            "workload": {
                "kind": "serving",
                "requests": 1,
                "arrivals": {"kind": "burst"},
                "input": 500,
                "output": 20,
            },
            "deployment": {"engine": "vllm-0.19", "options": {"kv_blocks": 50, "max_context": 1024}},
        },
        "test",
        Path(),
    )
    assert setting.pools[0].most_tokens == 800 - 128 - 16
    assert len(serve(setting).records.columns()["last_s"]) == 1
