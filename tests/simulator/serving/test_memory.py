"""Memory of a replica's devices: what a profiling run takes, and the fullest pipeline stage."""

import pytest

from hwmodels.cluster import clusters
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.memory import (
    activation_bytes,
    memory,
    stage_layers,
    stage_weight_bytes,
    weight_bytes,
)
from simulator.serving.steps.price import StepPrice

GIB = 2**30


def price_of(model: str, engine: str, cluster: str = "dgx-h100", **pool: object) -> StepPrice:
    return StepPrice(models.get(model), clusters.get(cluster), Pool(**pool), engines.get(engine))


def test_kv_of_minimax_on_four_h100_is_what_vllm_prints() -> None:
    """A service's log of vLLM 0.19.1: 307,184 tokens with at most 10 sequences and a share of 0.95."""
    capacity = memory(price_of("minimax-m2.5", "vllm-0.19", tensor=4, weights="fp8"), 8192, 10, 0.95)
    assert capacity.kv_bytes / GIB == pytest.approx(18.16, rel=0.03)
    assert capacity.kv_tokens == pytest.approx(307_184, rel=0.03)


def test_kv_of_r1_under_sglang_is_what_its_observers_report() -> None:
    """DeepSeek-R1 on eight H200, share 0.82: about 509,000 tokens (aisimulate pull 263)."""
    capacity = memory(price_of("deepseek-r1", "sglang-0.5.12", "dgx-h200", tensor=8), 32768, 256, 0.82)
    assert capacity.kv_tokens == pytest.approx(509_000, rel=0.03)


def test_sampling_without_a_sort_leaves_more_kv() -> None:
    """Llama 3.3 70B under TP4 on H200: 90.3 GiB in vLLM 0.14 and 91.6 in 0.18, weights the same."""
    old, new = (
        memory(price_of("llama3.3-70b", engine, "dgx-h200", tensor=4, weights="bf16"), 8192, 1024, 0.92)
        for engine in ("vllm-0.15", "vllm-0.18")
    )
    assert old.kv_bytes / GIB == pytest.approx(90.31, abs=0.6)
    assert new.kv_bytes / GIB == pytest.approx(91.58, abs=0.6)


def test_more_sequences_than_tokens_sample_no_more() -> None:
    price = price_of("gpt-oss-120b", "vllm-0.11", weights="fp4")
    assert activation_bytes(price, 512, 1024) == activation_bytes(price, 512, 512)
    assert activation_bytes(price, 512, 1024) < activation_bytes(price, 1024, 1024)


@pytest.mark.parametrize(("layers", "stages"), [(40, 4), (61, 8), (94, 4), (7, 3), (5, 1), (3, 3)])
def test_stages_share_all_layers_evenly(layers: int, stages: int) -> None:
    spans = stage_layers(layers, stages)
    assert [layer for span in spans for layer in range(*span)] == list(range(layers))
    sizes = [last - first for first, last in spans]
    assert max(sizes) - min(sizes) <= 1
    assert stages == 1 or sizes[-1] == layers // stages


def test_fullest_stage_bounds_kv() -> None:
    """61 layers on 8 stages: stages of 8 layers hold more weights and more KV of each token than the mean."""
    price = price_of("deepseek-v3", "vllm-0.15", tensor=1, pipeline=8)
    stages = stage_weight_bytes(price)
    assert weight_bytes(price) == max(stages) > sum(stages) / 8
    capacity = memory(price, 2048, 64)
    assert capacity.fullest == pytest.approx(8 * 8 / 61)
    tokens = capacity.kv_bytes / (capacity.kv_token * capacity.fullest)
    assert capacity.kv_tokens == pytest.approx(max(tokens, 0), abs=16)


def test_every_stage_of_vllm_holds_the_tower_and_encodes_its_largest_picture() -> None:
    """vLLM issue 36861: on four A10 of one node each, Qwen3.5-35B-A3B starts under TP4 and not under PP4."""
    memories = [
        memory(price_of("qwen3.5-35b-a3b", "vllm-0.17", "a10g-8", **cut), 4096, 32, 0.9)
        for cut in ({"tensor": 4}, {"pipeline": 4})
    ]
    assert memories[0].kv_blocks > 0
    assert memories[1].kv_blocks == 0
    # 65,536 patches of 1,536 colours in 32 and 16 bits, and ten hidden states of 1,152.
    price = price_of("qwen3.5-35b-a3b", "vllm-0.17", "a10g-8", pipeline=4)
    outputs = 16_384 * 2048 * 2
    assert activation_bytes(price, 4096, 32) == 65_536 * (1536 * 6 + 2 * 10 * 1152) + outputs
    sglang = price_of("qwen3.5-35b-a3b", "sglang-0.5.9", "a10g-8", pipeline=4)
    beyond = stage_weight_bytes(price) - stage_weight_bytes(sglang)
    assert beyond / 2 == pytest.approx([0, 447e6, 447e6, 447e6], rel=0.01)


def test_latent_attention_keeps_its_narrow_projections_whole_on_every_rank() -> None:
    """vLLM prints 79.74 GiB of weights a rank for DeepSeek-R1 under TP8, an eighth of all would be 78.3."""
    price = price_of("deepseek-r1", "vllm-0.15", "dgx-h200", tensor=8)
    assert weight_bytes(price) / GIB == pytest.approx(79.74, rel=0.01)
    price = price_of("deepseek-v3.2", "vllm-0.15", "dgx-h200", tensor=8)
    assert weight_bytes(price) / GIB == pytest.approx(80.62, rel=0.01)


def test_printed_capacities_are_met() -> None:
    """The table of printed capacities: sources left out of the fit are within 8 % in the median."""
    import statistics

    from evidence.accuracy.kv_capacity import FITTED, read

    rows = read()
    left_out = [row.error for row in rows if row.source not in FITTED]
    assert len(rows) >= 40
    assert statistics.median(abs(error) for error in left_out) < 0.08
    assert max(row.error for row in rows) < 0.25
