"""Configurations of families whose layers differ: parameters, and bytes of KV."""

import json
from pathlib import Path

import pytest

from core.errors import InputError
from core.loading import read_mapping
from simulator.models import Model, models
from simulator.ops.counts import model_parameters
from simulator.ops.tower import tower_parameters
from simulator.serving.steps.memory import kv_token_bytes
from tests.simulator.models.hf_configs import PUBLISHED_2025

DECODERS = read_mapping(Path(__file__).with_name("decoders.yaml"), bounded=False)


def read(tmp_path: Path, config: dict[str, object]) -> Model:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return models.get(path)


@pytest.mark.parametrize("name", DECODERS)
def test_parameters_are_those_that_transformers_builds(name: str, tmp_path: Path) -> None:
    case = DECODERS[name]
    assert model_parameters(read(tmp_path, case["config"])) == pytest.approx(case["parameters"], rel=1.5e-3)


def test_kv_of_deepseek_v4_is_one_entry_for_four_or_128_tokens(tmp_path: Path) -> None:
    """43 layers: 3 + 20 keep an entry of 512 values for 128 tokens, 20 one for 4 and an index key of 128."""
    model = read(tmp_path, DECODERS["deepseek_v4"]["config"])
    ratios = [
        4 if kind.startswith("compressed") else 128
        for kind in DECODERS["deepseek_v4"]["config"]["layer_types"]
    ]
    entries = sum(1 / ratio for ratio in ratios)
    expected = 2 * 512 * entries + 2 * 128 * sum(1 / ratio for ratio in ratios if ratio == 4)
    assert kv_token_bytes(model, 1, 1, None) == pytest.approx(expected)
    assert kv_token_bytes(model, 8, 1, None) == pytest.approx(expected)


def test_sliding_layers_have_heads_of_their_own(tmp_path: Path) -> None:
    """MiMo-V2-Flash: full layers keep 4 heads of 192 + 128 values a token, sliding ones 8."""
    model = read(tmp_path, DECODERS["mimo_v2_flash"]["config"])
    full, sliding = model.layers_of_kind("full"), model.layers_of_kind("sliding")
    assert kv_token_bytes(model, 1, 1, "fp8") == 4 * 320 * full + 8 * 320 * sliding
    assert kv_token_bytes(model, 1, 1, "fp8", sliding=0.0) == 4 * 320 * full


def test_layers_of_a_searched_model_have_widths_of_their_own(tmp_path: Path) -> None:
    """Nemotron's searched Llamas: blocks without attention, MLPs of several widths."""
    block = {"attention": {"n_heads_in_group": 8, "no_op": False}, "ffn": {"ffn_mult": 5.25, "no_op": False}}
    thin = {"attention": {"no_op": True}, "ffn": {"ffn_mult": 0.5, "no_op": False}}
    config = {
        "model_type": "nemotron-nas",
        "hidden_size": 8192,
        "num_attention_heads": 64,
        "num_hidden_layers": 4,
        "hidden_act": "silu",
        "vocab_size": 128256,
        "block_configs": [block, thin, block, thin],
    }
    model = read(tmp_path, config)
    assert model.feed_forwards == (28672, 2816, 28672, 2816)
    assert model.cached_layers == 2
    attention = 2 * 8192 * 8192 + 2 * 8192 * 1024
    listed = 2 * attention + 2 * 3 * 8192 * (28672 + 2816) + 8192 * (2 * 2 + 2 + 1) + 2 * 8192 * 128256
    assert model_parameters(model) == listed


def test_an_unknown_type_whose_keys_are_all_known_is_read_with_a_note(tmp_path: Path) -> None:
    config = {
        "model_type": "brand_new",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "hidden_act": "silu",
        "vocab_size": 128256,
        "tie_word_embeddings": False,
        "rope_theta": 500000.0,
    }
    model = read(tmp_path, config)
    assert model_parameters(model) == model_parameters(models.get("llama3.1-8b"))
    assert "brand_new" in model.left_out


def test_experts_in_four_bits_beside_a_checkpoint_in_eight(tmp_path: Path) -> None:
    config = DECODERS["deepseek_v4"]["config"] | {
        "expert_dtype": "fp4",
        "quantization_config": {"quant_method": "fp8"},
    }
    model = read(tmp_path, config)
    assert model.parts is not None
    assert model.parts.experts == {"fp4": 1.0}
    assert model.parts.attention == {"fp8": 1.0}


@pytest.mark.parametrize(
    "name", ["deepseek_v4", "gemma4_text", "kimi_linear", "mimo_v2_flash", "minimax_m3_vl_text"]
)
def test_a_server_of_the_family_is_priced(name: str, tmp_path: Path) -> None:
    from simulator.serving.scenario import make_serving

    (tmp_path / "config.json").write_text(json.dumps(DECODERS[name]["config"]), encoding="utf-8")
    question = {
        "model": str(tmp_path / "config.json"),
        "cluster": "dgx-b200",
        "gpus": 8,
        "workload": {
            "kind": "serving",
            "requests": 4,
            "arrivals": {"kind": "closed", "concurrency": 2},
            "input": {"kind": "fixed", "tokens": 500},
            "output": {"kind": "fixed", "tokens": 20},
        },
        "deployment": {"engine": "vllm-0.19", "tensor": 8, "weights": "fp8"},
    }
    pool = make_serving(question, "s", tmp_path).pools[0]
    assert 1e-4 < pool.costs.steps.step((), 2, 1000) < 0.2
    assert pool.costs.kv_blocks > 1000


def test_nemotron_in_nvfp4_without_lists_has_the_formats_that_nvidia_publishes(tmp_path: Path) -> None:
    """Routed experts in 4 bits, shared ones and Mamba in 8, attention in 16; a list is taken at its word."""
    formats = []
    for listed in ({}, {"exclude_modules": ["lm_head"]}):
        sidecar = {"quantization": {"quant_algo": "NVFP4"} | listed}
        (tmp_path / "hf_quant_config.json").write_text(json.dumps(sidecar), encoding="utf-8")
        formats.append(read(tmp_path, PUBLISHED_2025["nemotron-3-nano-30b-a3b"]).parts)
    published, stated = formats
    assert published is not None
    assert (published.experts, published.dense) == ({"fp4": 1.0}, {"fp8": 1.0})
    assert set(published.attention) == {"fp8", "bf16"}
    assert stated is not None
    assert stated.attention == {"fp4": 1.0}


def test_an_omni_model_has_the_tower_and_the_text_of_its_thinker(tmp_path: Path) -> None:
    model = read(tmp_path, DECODERS["qwen3_omni_moe"]["config"])
    assert model.tower is not None
    assert tower_parameters(model.tower) == 566_949_104
    assert "the audio encoder" in model.left_out


def test_minicpm_v_has_the_layers_of_its_version(tmp_path: Path) -> None:
    """Version 2.6 is Qwen2-7B with fewer rows of the embedding and of the output layer."""
    config: dict[str, object] = {
        "model_type": "minicpmv",
        "version": "2.6",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_hidden_layers": 28,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "hidden_act": "silu",
        "vocab_size": 151666,
    }
    assert model_parameters(read(tmp_path, config)) == 7_615_616_512 - 2 * 3584 * (152064 - 151666)
    with pytest.raises(InputError, match=r"version: one of 2\.5, 2\.6, 4\.0, 4\.5 is needed, found 'x'"):
        read(tmp_path, config | {"version": "x"})


@pytest.mark.parametrize(
    ("name", "words"), [("ernie", "pooling"), ("xmod", "adapters"), ("mvp", "no constant")]
)
def test_types_of_one_rule_have_notes_of_their_own(name: str, words: str, tmp_path: Path) -> None:
    assert read(tmp_path, DECODERS[name]["config"]).left_out.startswith(words)
