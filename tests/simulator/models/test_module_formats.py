"""Formats of single modules: lists of exclusions, of quantised layers, and groups with targets."""

import json

import pytest

from simulator.models import models
from simulator.models.module_formats import Linear, ModuleList
from simulator.ops.counts import model_parameters
from tests.simulator.models.hf_configs import CONFIGS, LLAMA

EXPERTS = {
    **CONFIGS["mixtral-8x7b"],
    "model_type": "qwen3_moe",
    "num_experts": 16,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 1024,
}
EXPERTS.pop("num_local_experts")


def read(folder, quantization, shape=LLAMA, sidecar=None):
    (folder / "config.json").write_text(json.dumps({**shape, "quantization_config": quantization}))
    if sidecar is not None:
        (folder / "hf_quant_config.json").write_text(json.dumps(sidecar))
    return models.get(folder / "config.json")


def attention_of(layers):
    return [f"model.layers.{i}.self_attn.{leaf}_proj" for i in range(layers) for leaf in "qkvo"]


def test_layers_of_an_exclusion_list_stay_in_16_bits(tmp_path):
    skipped = [*attention_of(32), *(f"model.layers.0.mlp.{leaf}_proj" for leaf in ("gate", "up", "down"))]
    model = read(tmp_path, {"quant_method": "fbgemm_fp8", "modules_to_not_convert": skipped})
    assert model.checkpoint == "fp8"
    assert model.parts.attention == {"bf16": 1.0}
    assert model.parts.dense == pytest.approx({"fp8": 31 / 32, "bf16": 1 / 32})


@pytest.mark.parametrize(
    "pattern", ["re:.*self_attn.*", "*self_attn*", "self_attn", "model.layers.*.self_attn"]
)
def test_a_list_may_name_modules_by_pattern(tmp_path, pattern):
    model = read(tmp_path, {"quant_method": "modelopt", "quant_algo": "FP8", "exclude_modules": [pattern]})
    assert model.parts.attention == {"bf16": 1.0}
    assert model.parts.dense == {"fp8": 1.0}


def test_lists_that_name_only_the_head_and_routers_leave_one_format(tmp_path):
    listed = ["lm_head", "re:.*mlp.gate$", "model.layers.0.mlp.gate", "gate", "visual"]
    model = read(tmp_path, {"quant_method": "fp8", "modules_to_not_convert": listed}, EXPERTS)
    assert (model.checkpoint, model.parts) == ("fp8", None)


def test_an_mlp_beside_experts_does_not_hold_them(tmp_path):
    listed = [f"model.language_model.layers.{i}.{name}*" for i in range(32) for name in ("mlp", "router")]
    stated = {"quant_method": "modelopt", "quant_algo": "NVFP4", "exclude_modules": [*listed, "*self_attn*"]}
    model = read(tmp_path, stated, EXPERTS)
    assert model.parts.experts == {"fp4": 1.0}
    inside = [name.replace("router", "mlp.router") for name in listed]
    model = read(tmp_path, {**stated, "exclude_modules": [*inside, "*self_attn*"]}, EXPERTS)
    assert model.checkpoint == "bf16" or model.parts.experts == {"bf16": 1.0}


def test_experts_alone_are_narrow(tmp_path):
    groups = {"group_0": {"targets": ["re:.*mlp\\.experts.*"], "weights": {"num_bits": 4, "type": "int"}}}
    model = read(tmp_path, {"quant_method": "compressed-tensors", "config_groups": groups}, EXPERTS)
    assert (model.checkpoint, model.parts.attention, model.parts.experts) == (
        "int4",
        {"bf16": 1.0},
        {"int4": 1.0},
    )


def test_groups_of_several_formats(tmp_path):
    groups = {
        "group_0": {"targets": ["re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float"}},
        "group_1": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int"}},
    }
    model = read(
        tmp_path, {"quant_method": "compressed-tensors", "config_groups": groups, "ignore": ["lm_head"]}
    )
    assert (model.checkpoint, model.parts.attention, model.parts.dense) == (
        "int4",
        {"fp8": 1.0},
        {"int4": 1.0},
    )
    assert model.weight_only == ["fp8"]


def test_a_list_of_few_layers_shows_the_pattern(tmp_path):
    layers = {name: {"quant_algo": "FP8"} for name in attention_of(2)}
    layers |= {
        f"model.layers.1.mlp.{leaf}_proj": {"quant_algo": "W4A16_NVFP4"} for leaf in ("gate", "up", "down")
    }
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    model = read(tmp_path, mixed)
    assert (model.checkpoint, model.parts.attention, model.parts.dense) == ("fp4", {"fp8": 1.0}, {"fp4": 1.0})
    assert model.weight_only == ["fp4"]
    assert "2 of 32 layers" in model.left_out


def test_a_list_of_all_layers_leaves_the_others_in_16_bits(tmp_path):
    layers = {name: {"quant_algo": "FP8"} for name in attention_of(32)} | {"lm_head": {"quant_algo": "FP8"}}
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    parts = read(tmp_path, mixed).parts
    assert (parts.attention, parts.dense, parts.head) == ({"fp8": 1.0}, {"bf16": 1.0}, {"fp8": 1.0})


def test_the_file_beside_a_config_states_weights_and_kv(tmp_path):
    sidecar = {
        "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}
    }
    model = read(tmp_path, None, sidecar=sidecar)
    assert (model.checkpoint, model.parts, model.checkpoint_kv) == ("fp8", None, "fp8")


def test_an_algorithm_without_a_method_is_of_model_optimizer(tmp_path):
    model = read(tmp_path, {"quant_algo": "FP8", "kv_cache_scheme": "FP8", "ignore": ["lm_head"]})
    assert (model.checkpoint, model.checkpoint_problem, model.checkpoint_kv) == ("fp8", "", "fp8")


def test_a_scheme_states_the_format_of_kv(tmp_path):
    groups = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}
    scheme = {"num_bits": 8, "type": "float", "dynamic": False}
    config = {"quant_method": "compressed-tensors", "config_groups": groups, "kv_cache_scheme": scheme}
    assert read(tmp_path, config).checkpoint_kv == "fp8"


@pytest.mark.parametrize("pattern", ["re:(a+)+$", "re:(", "re:.*.*.*.*.*x", "****" * 5])
def test_expressions_that_may_take_forever_are_named_and_not_evaluated(tmp_path, pattern):
    model = read(tmp_path, {"quant_method": "fp8", "ignored_layers": [pattern]})
    assert "not evaluated" in model.left_out


def test_a_parent_and_a_prefix_name_their_modules():
    linear = Linear("attention", "cached", ("self_attn.q_proj",), 1)
    for pattern in ("model.layers.3", "model.layers.3.self_attn", "model.layers.3.self_attn*"):
        listed = ModuleList([pattern])
        assert listed.has(3, linear)
        assert not listed.has(4, linear)


def test_the_shape_of_a_quantised_model_is_its_own(tmp_path):
    plain = read(tmp_path, None)
    assert model_parameters(read(tmp_path, {"quant_method": "fp8"})) == model_parameters(plain)


def test_lists_that_name_each_experts_products_are_read_whole(tmp_path):
    experts = [
        f"model.layers.{layer}.mlp.experts.{expert}.{leaf}_proj"
        for layer in range(32)
        for expert in range(64)
        for leaf in ("gate", "up", "down")
    ]
    layers = {name: {"quant_algo": "NVFP4"} for name in experts}
    layers |= {name: {"quant_algo": "MXFP8"} for name in attention_of(32)}
    stated = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    model = read(tmp_path, stated, {**EXPERTS, "num_experts": 64})
    assert model.checkpoint == "fp4"
    assert model.parts.experts == {"fp4": 1.0}
    assert model.parts.attention == {"fp8": 1.0}
    assert "its list names" not in model.left_out


def test_patterns_beyond_those_evaluated_are_told(tmp_path):
    skipped = [f"part_{number}" for number in range(5000)]
    model = read(tmp_path, {"quant_method": "fp8", "modules_to_not_convert": skipped})
    assert "'part_4096' are not evaluated" in model.left_out


def test_a_named_config_has_a_named_sidecar(tmp_path):
    (tmp_path / "llama_config.json").write_text(json.dumps(LLAMA))
    stated = {"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    (tmp_path / "llama_hf_quant_config.json").write_text(json.dumps(stated))
    model = models.get(tmp_path / "llama_config.json")
    assert (model.checkpoint, model.left_out) == ("fp8", "")


def test_a_quantisation_without_a_list_of_exclusions_is_told(tmp_path):
    model = read(tmp_path, None, sidecar={"quantization": {"quant_algo": "FP8"}})
    assert "lists no modules in 16 bits" in model.left_out
