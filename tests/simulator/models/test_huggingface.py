"""config.json files, shortened to the keys that say something about the shape, against the catalogue."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.errors import InputError, UnknownNameError
from simulator.models import models

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": False,
    "vocab_size": 128256,
}

CONFIGS = {
    "llama3.1-8b": LLAMA,
    "llama3.2-1b": LLAMA
    | {
        "head_dim": 64,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "tie_word_embeddings": True,
    },
    "mistral-7b": {
        "model_type": "mistral",
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    "mixtral-8x7b": {
        "model_type": "mixtral",
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "max_position_embeddings": 32768,
        "num_attention_heads": 32,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 32,
        "num_key_value_heads": 8,
        "num_local_experts": 8,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "vocab_size": 32000,
    },
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "hidden_act": "silu",
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "max_position_embeddings": 131072,
        "max_window_layers": 28,
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "sliding_window": 131072,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vocab_size": 152064,
    },
    "qwen3-30b-a3b": {
        "model_type": "qwen3_moe",
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "head_dim": 128,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "max_position_embeddings": 40960,
        "max_window_layers": 48,
        "mlp_only_layers": [],
        "moe_intermediate_size": 768,
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "use_sliding_window": False,
        "vocab_size": 151936,
    },
    "deepseek-v2-lite": {
        "model_type": "deepseek_v2",
        "first_k_dense_replace": 1,
        "hidden_act": "silu",
        "hidden_size": 2048,
        "intermediate_size": 10944,
        "kv_lora_rank": 512,
        "max_position_embeddings": 163840,
        "moe_intermediate_size": 1408,
        "moe_layer_freq": 1,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_attention_heads": 16,
        "num_experts_per_tok": 6,
        "num_hidden_layers": 27,
        "num_key_value_heads": 16,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "tie_word_embeddings": False,
        "v_head_dim": 128,
        "vocab_size": 102400,
    },
    "deepseek-v3": {
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 3,
        "hidden_act": "silu",
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "max_position_embeddings": 163840,
        "moe_intermediate_size": 2048,
        "moe_layer_freq": 1,
        "n_routed_experts": 256,
        "n_group": 8,
        "topk_group": 4,
        "n_shared_experts": 1,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "tie_word_embeddings": False,
        "v_head_dim": 128,
        "vocab_size": 129280,
    },
    "gpt-neox-20b": {
        "model_type": "gpt_neox",
        "hidden_act": "gelu_fast",
        "hidden_size": 6144,
        "intermediate_size": 24576,
        "max_position_embeddings": 2048,
        "num_attention_heads": 64,
        "num_hidden_layers": 44,
        "tie_word_embeddings": False,
        "vocab_size": 50432,
    },
    "gpt2": {
        "model_type": "gpt2",
        "activation_function": "gelu_new",
        "n_ctx": 1024,
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
    "opt-6.7b": {
        "model_type": "opt",
        "activation_function": "relu",
        "ffn_dim": 16384,
        "hidden_size": 4096,
        "max_position_embeddings": 2048,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "vocab_size": 50272,
        "word_embed_proj_dim": 4096,
    },
    "bloom-176b": {
        "model_type": "bloom",
        "hidden_size": 14336,
        "n_head": 112,
        "n_layer": 70,
        "seq_length": 2048,
        "vocab_size": 250880,
    },
    "falcon-7b": {
        "model_type": "falcon",
        "alibi": False,
        "bias": False,
        "hidden_size": 4544,
        "multi_query": True,
        "new_decoder_architecture": False,
        "num_attention_heads": 71,
        "num_hidden_layers": 32,
        "parallel_attn": True,
        "vocab_size": 65024,
    },
    "falcon-40b": {
        "model_type": "RefinedWeb",
        "alibi": False,
        "bias": False,
        "hidden_size": 8192,
        "n_head": 128,
        "n_head_kv": 8,
        "n_layer": 60,
        "new_decoder_architecture": True,
        "parallel_attn": True,
        "vocab_size": 65024,
    },
    "mpt-7b": {
        "model_type": "mpt",
        "attn_config": {"alibi": False, "attn_impl": "flash", "attn_type": "multihead_attention"},
        "d_model": 4096,
        "expansion_ratio": 4,
        "learned_pos_emb": True,
        "max_seq_len": 2048,
        "n_heads": 32,
        "n_layers": 32,
        "no_bias": False,
        "vocab_size": 50368,
    },
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "attention_bias": True,
        "experts_per_token": 4,
        "head_dim": 64,
        "hidden_act": "silu",
        "hidden_size": 2880,
        "initial_context_length": 4096,
        "intermediate_size": 2880,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
        "max_position_embeddings": 131072,
        "num_attention_heads": 64,
        "num_experts_per_tok": 4,
        "num_hidden_layers": 24,
        "num_key_value_heads": 8,
        "num_local_experts": 32,
        "sliding_window": 128,
        "tie_word_embeddings": False,
        "vocab_size": 201088,
    },
    "grok-1": {
        "model_type": "grok-1",
        "hidden_size": 6144,
        "intermediate_size": 32768,
        "max_position_embeddings": 8192,
        "num_attention_heads": 48,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_hidden_layers": 64,
        "num_key_value_heads": 8,
        "vocab_size": 131072,
    },
    "nemotron-4-340b": {
        "model_type": "nemotron",
        "hidden_act": "relu2",
        "hidden_size": 18432,
        "intermediate_size": 73728,
        "max_position_embeddings": 4096,
        "num_attention_heads": 96,
        "num_hidden_layers": 96,
        "num_key_value_heads": 8,
        "tie_word_embeddings": False,
        "vocab_size": 256000,
    },
    "phi-2": {
        "model_type": "phi",
        "hidden_act": "gelu_new",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "max_position_embeddings": 2048,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "tie_word_embeddings": False,
        "vocab_size": 51200,
    },
    "phi-4": {
        "model_type": "phi3",
        "attention_bias": False,
        "hidden_act": "silu",
        "hidden_size": 5120,
        "intermediate_size": 17920,
        "max_position_embeddings": 16384,
        "num_attention_heads": 40,
        "num_hidden_layers": 40,
        "num_key_value_heads": 10,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "vocab_size": 100352,
    },
    "gemma2-9b": {
        "model_type": "gemma2",
        "head_dim": 256,
        "hidden_act": "gelu_pytorch_tanh",
        "hidden_activation": "gelu_pytorch_tanh",
        "hidden_size": 3584,
        "intermediate_size": 14336,
        "max_position_embeddings": 8192,
        "num_attention_heads": 16,
        "num_hidden_layers": 42,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
        "vocab_size": 256000,
    },
    "internlm-7b": {
        "model_type": "internlm",
        "bias": True,
        "hidden_act": "silu",
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "max_position_embeddings": 2048,
        "num_attention_heads": 32,
        "num_hidden_layers": 32,
        "tie_word_embeddings": False,
        "vocab_size": 103168,
    },
    "llama4-maverick": {
        "model_type": "llama4",
        "text_config": {
            "model_type": "llama4_text",
            "attention_bias": False,
            "head_dim": 128,
            "hidden_act": "silu",
            "hidden_size": 5120,
            "interleave_moe_layer_step": 2,
            "intermediate_size": 8192,
            "intermediate_size_mlp": 16384,
            "max_position_embeddings": 8192,
            "num_attention_heads": 40,
            "num_experts_per_tok": 1,
            "num_hidden_layers": 48,
            "num_key_value_heads": 8,
            "num_local_experts": 128,
            "vocab_size": 202048,
        },
        "vision_config": {"hidden_size": 1408, "num_hidden_layers": 34},
    },
}

ABOUT = {"name", "family", "source", "stated_parameters"}


def written(folder, config, name="config.json"):
    path = folder / name
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    return path


def shape(model):
    kinds = [model.attention_kind(layer) for layer in range(model.layers)]
    return model.model_dump(exclude=ABOUT | {"attention_pattern"}) | {"kinds": kinds}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_config_reads_as_the_catalogue_says(name, tmp_path):
    got = models.get(written(tmp_path, CONFIGS[name]))
    assert shape(got) == shape(models.get(name))
    assert got.parameters() == models.get(name).parameters()


def test_file_folder_and_text_path_mean_the_same(tmp_path):
    folder = tmp_path / "Llama-3.1-8B"
    folder.mkdir()
    path = written(folder, LLAMA)
    assert models.get(folder) == models.get(path) == models.get(str(path))
    assert models.get(folder).name == "Llama-3.1-8B"
    other = written(tmp_path, LLAMA, "meta-llama--Llama-3.1-8B_config.json")
    assert models.get(str(other)).name == "meta-llama--Llama-3.1-8B"


def test_our_own_yaml_is_read_as_such(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("{name: mine, layers: 2, hidden: 8, heads: 2, feed_forward: 32, vocabulary: 10}\n")
    assert models.get(str(path)).name == "mine"


def test_an_unknown_model_type_reads_by_the_usual_keys(tmp_path):
    config = {key: value for key, value in LLAMA.items() if key != "architectures"}
    got = models.get(written(tmp_path, config | {"model_type": "brand_new"}))
    assert shape(got) == shape(models.get("llama3.1-8b"))


def test_a_released_mpt_has_alibi_and_no_biases(tmp_path):
    config = CONFIGS["mpt-7b"] | {"attn_config": {"alibi": True}, "no_bias": True, "vocab_size": 50432}
    got = models.get(written(tmp_path, config))
    # The released MPT-7B counts 6,649,286,656; it also drops the shifts of its 65 layer norms.
    assert got.parameters() - 65 * 4096 == 6_649_286_656


def test_expert_layers_given_as_a_list(tmp_path):
    config = CONFIGS["deepseek-v3"] | {"moe_layer_freq": [0] * 3 + [1] * 58}
    del config["first_k_dense_replace"]
    assert shape(models.get(written(tmp_path, config))) == shape(models.get("deepseek-v3"))


REFUSED = [
    ({"hidden_size": None}, "needed keys are missing: hidden_size (or n_embd, n_embed, d_model)"),
    ({"hidden_size": "4096"}, "hidden_size: a whole number is needed, found '4096'"),
    ({"hidden_size": True}, "hidden_size: a whole number is needed, found True"),
    ({"hidden_size": 4096.5}, "hidden_size: a whole number is needed, found 4096.5"),
    ({"tie_word_embeddings": "no"}, "tie_word_embeddings: true or false is needed, found 'no'"),
    ({"num_key_value_heads": 5}, "heads (32) does not divide by kv_heads (5)"),
    ({"num_hidden_layers": -1}, "layers: Input should be greater than 0, found -1"),
    ({"hidden_act": "swiiglu"}, "did you mean 'swiglu'?"),
    ({"model_type": "new", "vocab_size": None}, "model_type 'new' is not known, and needed keys are missing"),
    ({"model_type": "new", "full_attention_interval": 4}, "linear-attention layers are not supported yet"),
    ({"layer_types": ["delta_attention"]}, "unknown kind of attention 'delta_attention'"),
    ({"is_encoder_decoder": True}, "encoder-decoder models are not supported"),
    ({"num_experts": 8, "mlp_only_layers": [5]}, "must be the first ones"),
    ({"num_experts": 8}, "key 'moe.top_k' is missing"),
    ({"model_type": "opt", "ffn_dim": 1, "word_embed_proj_dim": 512}, "word_embed_proj_dim"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED)
def test_an_odd_config_is_refused_with_file_and_key(change, message, tmp_path):
    path = written(tmp_path, LLAMA | change)
    with pytest.raises(InputError) as error:
        models.get(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_a_folder_without_a_config_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"no config\.json in this folder"):
        models.get(tmp_path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        models.get(str(tmp_path / "nowhere" / "config.json"))


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(UnknownNameError, match="did you mean 'llama3-8b'"):
        models.get("llama3-80b")


@given(keep=st.floats(0, 1, exclude_max=True))
def test_a_file_cut_off_anywhere_is_one_clear_error(keep, tmp_path_factory):
    text = json.dumps(LLAMA, indent=2)
    path = tmp_path_factory.mktemp("cut") / "config.json"
    path.write_text(text[: int(keep * len(text))], encoding="utf-8")
    with pytest.raises(InputError) as error:
        models.get(path)
    assert str(path) in str(error.value)
