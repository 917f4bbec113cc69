"""Number formats of checkpoints: from config.json, from names, and as the default of a deployment."""

import json

import pytest

from core.errors import InputError
from hwmodels.usual_clusters import USUAL
from simulator.models import models
from simulator.models.checkpoints import format_of_name
from simulator.serving.question.deployment import Pool
from simulator.serving.scenario import make_serving
from tests.simulator.models.hf_configs import LLAMA

FLOAT8 = {"num_bits": 8, "type": "float"}
INT4 = {"num_bits": 4, "type": "int"}


def read(folder, quantization, key="quantization_config", name="config.json"):
    """A Llama with a quantisation."""
    path = folder / name
    path.write_text(json.dumps({**LLAMA, key: quantization}), encoding="utf-8")
    return models.get(path)


@pytest.mark.parametrize(
    ("quantization", "found"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "fbgemm_fp8"}, "fp8"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": []}, "fp4"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": FLOAT8}}}, "fp8"),
        ({"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": INT4}}}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4"),
        ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp4"}}}, "fp4"),
    ],
)
def test_a_config_states_the_format_of_its_weights(tmp_path, quantization, found):
    assert read(tmp_path, quantization).checkpoint == found


@pytest.mark.parametrize("method", ["mxfp4", "modelopt_fp4"])
def test_a_config_states_the_blocks_of_its_4_bit_weights(tmp_path, method):
    assert read(tmp_path, {"quant_method": method}).fp4 == ("mxfp4" if method == "mxfp4" else "nvfp4")


def test_an_older_config_states_its_compression(tmp_path):
    groups = {"config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "int"}}}}
    assert read(tmp_path, groups, "compression_config").checkpoint == "int8"


def test_a_config_without_quantisation_holds_16_bits(tmp_path):
    assert read(tmp_path, None).checkpoint == "bf16"


@pytest.mark.parametrize(
    ("quantization", "problem"),
    [
        ({"quant_method": "gguf"}, "gguf"),
        ({"quant_method": "gptqq", "bits": 4}, "did you mean 'gptq'"),
        ({"quant_method": "gptq", "bits": 3}, "3 bits"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": INT4}, "group_1": {"weights": FLOAT8}},
            },
            "mixed formats",
        ),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "no format"),
    ],
)
def test_a_quantisation_that_is_not_described_is_refused(tmp_path, quantization, problem):
    model = read(tmp_path, quantization)
    with pytest.raises(InputError) as error:
        Pool.model_validate({}).of(model)
    assert problem in str(error.value)
    assert "quantization_config" in str(error.value)
    assert "--fix weights=" in str(error.value)
    assert Pool.model_validate({"weights": "int4"}).of(model).weights == "int4"


def test_the_config_wins_over_the_name_and_is_named(tmp_path):
    folder = tmp_path / "Llama-3.1-8B-Instruct-FP8"
    folder.mkdir()
    found = read(folder, None)
    assert found.checkpoint == "bf16"
    assert "its name says fp8" in found.left_out


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Qwen/Qwen3-32B-FP8", "fp8"),
        ("nvidia/DeepSeek-R1-0528-FP4-v2", "fp4"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "int4"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "int8"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "int4"),
        ("deepseek-ai/DeepSeek-V3", "fp8"),
        ("unsloth/DeepSeek-R1-0528-BF16", "bf16"),
        ("openai/gpt-oss-120b", "fp4"),
        ("moonshotai/Kimi-K2-Thinking", "int4"),
        ("moonshotai/Kimi-K2-Instruct", "fp8"),
        ("meta-llama/Llama-3.1-8B-Instruct", "bf16"),
    ],
)
def test_a_name_means_a_checkpoint_in_its_format(name, found):
    assert models.get(name).checkpoint == found


def test_listed_checkpoints_mean_their_model_and_format():
    for model in models:
        for own, names in model.checkpoints.items():
            for name in names:
                found = models.get(name)
                assert (models.resolve(found.name), found.checkpoint) == (model.name, own)


def test_words_inside_other_words_state_no_format():
    assert format_of_name("alphafp80") is None


def scenario(model, cluster, gpus, **pool):
    """A serving scenario of one replica."""
    return {
        "model": model,
        "cluster": cluster,
        "gpus": gpus,
        "workload": {
            "kind": "serving",
            "requests": 5,
            "arrivals": {"kind": "burst"},
            "input": {"kind": "fixed", "tokens": 100},
            "output": {"kind": "fixed", "tokens": 10},
        },
        "deployment": {"tensor": gpus, **pool},
    }


def test_a_deployment_stores_weights_as_the_checkpoint_unless_it_says_otherwise(tmp_path):
    asked = scenario("qwen3-32b", USUAL["h100-sxm"], 2)
    eight = make_serving({**asked, "model": "Qwen/Qwen3-32B-FP8"}, "s", tmp_path).pools[0]
    wide = make_serving(asked, "s", tmp_path).pools[0]
    stated = scenario("Qwen/Qwen3-32B-FP8", USUAL["h100-sxm"], 2, weights="bf16")
    assert (eight.pool.weights, wide.pool.weights) == ("fp8", "bf16")
    assert make_serving(stated, "s", tmp_path).pools[0].pool.weights == "bf16"
    assert eight.costs.kv_blocks > wide.costs.kv_blocks


def test_weights_that_the_device_cannot_multiply_run_in_a_kernel_that_widens_them(tmp_path):
    asked = scenario("openai/gpt-oss-20b", USUAL["a100-sxm-80gb"], 1)
    weights = make_serving(asked, "s", tmp_path).pools[0].costs.steps.price.weights  # pyright: ignore[reportAttributeAccessIssue]
    assert weights.experts_tiled or weights.experts_widened
    assert (weights.dense, weights.expert_bytes < 1.0) == ("bf16", True)
