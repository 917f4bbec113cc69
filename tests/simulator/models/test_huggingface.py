"""config.json files, shortened to the keys that say something about the shape, against the catalogue."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError, UnknownNameError
from core.loading import parse_text
from simulator.models import models
from simulator.models.model import VISION
from simulator.ops.counts import model_parameters
from simulator.serving.steps.memory import kv_token_bytes
from tests.simulator.models.hf_configs import CONFIGS, CONSTANTS, LLAMA, PUBLISHED_2025

ABOUT = {
    "numerics",
    "name",
    "aliases",
    "family",
    "source",
    "stated_parameters",
    "checkpoint",
    "checkpoints",
    "fp4",
    "mtp_layers",
    "draft_heads",
    "left_out",
    "tower",
    "tower_problem",
}


def written(folder, config, name="config.json"):
    path = folder / name
    path.write_text(json.dumps(config, indent=2), encoding="utf-8")
    return path


def shape(model):
    kinds = [model.attention_kind(layer) for layer in range(model.layers)]
    return model.model_dump(exclude=ABOUT | {"attention_pattern"}) | {"kinds": kinds}


def _tower(config):
    return VISION if "vision_config" in config else ""


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_a_config_reads_as_the_catalogue_says(name, tmp_path):
    got = models.get(written(tmp_path, CONFIGS[name]))
    assert shape(got) == shape(models.get(name))
    assert got.left_out == _tower(CONFIGS[name])
    assert model_parameters(got) == model_parameters(models.get(name))


@pytest.mark.parametrize("name", sorted(PUBLISHED_2025))
def test_a_config_of_2025_has_the_parameters_and_layers_of_the_catalogue(name, tmp_path):
    got, known = models.get(written(tmp_path, PUBLISHED_2025[name])), models.get(name)
    assert model_parameters(got) == model_parameters(known)
    for field in ("moe", "mla", "linear"):
        assert bool(getattr(got, field)) == bool(getattr(known, field))
    layers = range(known.layers)
    assert [*map(got.attention_kind, layers)] == [*map(known.attention_kind, layers)]
    assert [*map(got.is_moe_layer, layers)] == [*map(known.is_moe_layer, layers)]
    assert got.max_sequence == known.max_sequence
    told = dict.fromkeys(filter(None, (known.left_out, _tower(PUBLISHED_2025[name]))))
    assert got.left_out == "; ".join(told)


def test_layers_of_nemotron_h_are_read_from_a_list_too(tmp_path):
    config = PUBLISHED_2025["nemotron-3-nano-30b-a3b"]
    names = {"M": "mamba", "E": "moe", "*": "attention"}
    listed = {"layers_block_type": [names[letter] for letter in config["hybrid_override_pattern"]]}
    other = {
        key: value
        for key, value in config.items()
        if key not in ("hybrid_override_pattern", "num_hidden_layers")
    }
    assert shape(models.get(written(tmp_path, other | listed))) == shape(
        models.get(written(tmp_path, config))
    )


def test_experts_of_a_latent_width_are_read(tmp_path):
    config = PUBLISHED_2025["nemotron-3-nano-30b-a3b"] | {"moe_latent_size": 1024}
    latent = models.get(written(tmp_path, config))
    assert latent.moe and latent.moe.latent == 1024
    narrower = 128 * 2 * 1856 * (2688 - 1024) - 2 * 1024 * 2688
    layers = sum(map(latent.is_moe_layer, range(latent.layers)))
    whole = model_parameters(models.get("nemotron-3-nano-30b-a3b"))
    assert whole - model_parameters(latent) == layers * narrower


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


def test_a_file_without_a_model_type_is_read_by_its_class(tmp_path):
    config = {key: value for key, value in LLAMA.items() if key != "model_type"}
    assert shape(models.get(written(tmp_path, config))) == shape(models.get("llama3.1-8b"))


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("albert", "model_type 'albert': encoders of this kind are not supported"),
        ("longt5", "encoder-decoders of this kind are not supported"),
        ("trocr", "its encoder is in another file"),
        (["llama"], "model_type: a name is needed"),
        ("", "model_type: a name is needed"),
    ],
)
def test_an_unknown_model_type_is_refused(model_type, message, tmp_path):
    path = written(tmp_path, LLAMA | {"model_type": model_type})
    with pytest.raises(InputError) as error:
        models.get(path)
    assert message in str(error.value)


GEMMA3 = {
    "model_type": "gemma3_text",
    "hidden_size": 2560,
    "intermediate_size": 10240,
    "num_hidden_layers": 34,
}
COUNTED = {
    # The files of Hugging Face, shortened, and the number of parameters that it shows for them.
    "command-r-plus": (
        "{model_type: cohere, hidden_act: silu, hidden_size: 12288, intermediate_size: 33792, "
        "num_attention_heads: 96, num_hidden_layers: 64, num_key_value_heads: 8, use_qk_norm: true, "
        "vocab_size: 256000}",
        103_810_674_688,
    ),
    "command-r7b": (
        "{model_type: cohere2, hidden_act: silu, hidden_size: 4096, intermediate_size: 14336, "
        "num_attention_heads: 32, num_hidden_layers: 32, num_key_value_heads: 8, head_dim: 128, "
        "sliding_window: 4096, sliding_window_pattern: 4, vocab_size: 256000}",
        8_027_967_488,
    ),
    "dbrx": (
        "{model_type: dbrx, attn_config: {kv_n_heads: 8}, d_model: 6144, n_heads: 48, n_layers: 40, "
        "ffn_config: {ffn_hidden_size: 10752, moe_num_experts: 16, moe_top_k: 4}, max_seq_len: 32768, "
        "tie_word_embeddings: false, vocab_size: 100352}",
        131_596_523_520,
    ),
    "gpt-j": (
        "{model_type: gptj, activation_function: gelu_new, n_embd: 4096, n_head: 16, n_layer: 28, "
        "n_positions: 2048, tie_word_embeddings: false, vocab_size: 50400}",
        6_050_882_784,
    ),
    "gpt-neo-2.7b": (
        "{model_type: gpt_neo, activation_function: gelu_new, hidden_size: 2560, num_heads: 20, "
        "num_layers: 32, max_position_embeddings: 2048, vocab_size: 50257, window_size: 256}",
        2_651_307_520,
    ),
    "starcoder": (
        "{model_type: gpt_bigcode, activation_function: gelu, multi_query: true, n_embd: 6144, n_head: 48, "
        "n_inner: 24576, n_layer: 40, n_positions: 8192, vocab_size: 49152}",
        15_517_456_384,
    ),
    "gemma-3-1b": (
        "{model_type: gemma3_text, hidden_activation: gelu_pytorch_tanh, hidden_size: 1152, "
        "intermediate_size: 6912, num_attention_heads: 4, num_hidden_layers: 26, num_key_value_heads: 1, "
        "sliding_window: 512, sliding_window_pattern: 6, vocab_size: 262144}",
        999_885_952,
    ),
    "gemma-3-27b": (
        "{model_type: gemma3, vision_config: {hidden_size: 1152}, text_config: {model_type: gemma3_text, "
        "head_dim: 128, hidden_size: 5376, intermediate_size: 21504, num_attention_heads: 32, "
        "num_hidden_layers: 62, num_key_value_heads: 16, sliding_window: 1024}}",
        27_009_346_304,
    ),
    "olmo2-7b": (
        "{model_type: olmo2, hidden_act: silu, hidden_size: 4096, intermediate_size: 11008, "
        "num_attention_heads: 32, num_hidden_layers: 32, vocab_size: 100352, tie_word_embeddings: false}",
        7_298_617_344,
    ),
    "olmoe": (
        "{model_type: olmoe, hidden_act: silu, hidden_size: 2048, intermediate_size: 1024, "
        "num_attention_heads: 16, num_hidden_layers: 16, num_experts: 64, num_experts_per_tok: 8, "
        "vocab_size: 50304}",
        6_919_161_856,
    ),
    "stablelm-3b": (
        "{model_type: stablelm, hidden_act: silu, hidden_size: 2560, intermediate_size: 6912, "
        "num_attention_heads: 32, num_hidden_layers: 32, vocab_size: 50304, use_qkv_bias: false}",
        2_795_443_200,
    ),
    "glm-4-9b": (
        "{model_type: chatglm, add_bias_linear: false, add_qkv_bias: true, ffn_hidden_size: 13696, "
        "hidden_size: 4096, kv_channels: 128, multi_query_group_num: 2, num_attention_heads: 32, "
        "num_layers: 40, padded_vocab_size: 151552, seq_length: 131072}",
        9_399_951_360,
    ),
    "phi-3.5-moe": (
        "{model_type: phimoe, hidden_act: silu, hidden_size: 4096, intermediate_size: 6400, "
        "num_attention_heads: 32, num_hidden_layers: 32, num_key_value_heads: 8, num_local_experts: 16, "
        "num_experts_per_tok: 2, vocab_size: 32064, attention_bias: true}",
        41_873_153_344,
    ),
    "minimax-m2": (
        "{model_type: minimax, head_dim: 128, hidden_act: silu, hidden_size: 3072, intermediate_size: 1536, "
        "num_attention_heads: 48, num_hidden_layers: 62, num_key_value_heads: 8, num_local_experts: 256, "
        "num_experts_per_tok: 8, use_qk_norm: true, vocab_size: 200064}",
        model_parameters(models.get("minimax-m2")),
    ),
    "glm-4.5": (
        "{model_type: glm4_moe, attention_bias: true, first_k_dense_replace: 3, head_dim: 128, "
        "hidden_act: silu, hidden_size: 5120, intermediate_size: 12288, moe_intermediate_size: 1536, "
        "n_routed_experts: 160, n_shared_experts: 1, num_attention_heads: 96, num_experts_per_tok: 8, "
        "num_hidden_layers: 92, num_key_value_heads: 8, use_qk_norm: true, vocab_size: 151552}",
        model_parameters(models.get("glm-4.5")),
    ),
}


@pytest.mark.parametrize("name", sorted(COUNTED))
def test_a_file_has_as_many_parameters_as_its_publication_counts(name, tmp_path):
    """Some leave out the shifts of layer norms, or norm all heads together: 0.004 % at most."""
    text, stated = COUNTED[name]
    found = models.get(written(tmp_path, parse_text(text, name)))
    assert model_parameters(found) == pytest.approx(stated, rel=4e-5)


def test_the_multimodal_file_of_gemma_3_leaves_defaults_to_transformers(tmp_path):
    config = {"model_type": "gemma3", "text_config": GEMMA3 | {"sliding_window": 1024}}
    found = models.get(written(tmp_path, config))
    assert model_parameters(found) == 3_880_263_168
    kinds = [found.attention_kind(layer) for layer in range(12)]
    assert kinds == (["sliding"] * 5 + ["full"]) * 2
    assert (found.sliding_window, found.max_sequence, found.vocabulary) == (1024, 131072, 262208)


@pytest.mark.parametrize(
    ("key", "value", "kinds"),
    [
        ("sliding_window_pattern", 4, "sssfsssf"),
        ("_sliding_window_pattern", 2, "sfsfsf"),
        ("sliding_window_pattern", "LLG", "ssfssf"),
    ],
)
def test_periods_of_windows_are_read(key, value, kinds, tmp_path):
    found = models.get(written(tmp_path, LLAMA | {"sliding_window": 512, key: value}))
    assert "".join(found.attention_kind(layer)[0] for layer in range(len(kinds))) == kinds


def test_a_released_mpt_has_alibi_and_no_biases(tmp_path):
    config = CONFIGS["mpt-7b"] | {"attn_config": {"alibi": True}, "no_bias": True, "vocab_size": 50432}
    got = models.get(written(tmp_path, config))
    # The released MPT-7B counts 6,649,286,656; it also drops the shifts of its 65 layer norms.
    assert model_parameters(got) - 65 * 4096 == 6_649_286_656


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
    ({"num_hidden_layers": -1}, "layers: must be above 0, found -1"),
    ({"hidden_act": "swiiglu"}, "did you mean 'swiglu'?"),
    ({"vocab_size": None}, "needed keys are missing: vocab_size"),
    ({"model_type": None, "architectures": []}, "key 'model_type' is missing"),
    ({"model_type": "minimax", "attn_type_list": [1, 2]}, "attn_type_list: only 0, 1 are read"),
    ({"model_type": "new", "gate_lower_bound": 2}, "its keys 'gate_lower_bound' are not read"),
    ({"model_type": "new", "hidden_act": "gelu"}, "does not tell whether its MLP has a gate"),
    ({"model_type": "nemotron-nas"}, "block_configs: a list with an entry for each layer is needed"),
    ({"model_type": "deepseek_v4"}, "compress_ratios: a list with a number for each layer is needed"),
    ({"cross_attention_layers": [3]}, "cross-attention layers are not supported"),
    ({"sliding_window": 8, "sliding_window_pattern": "LX"}, "a number or L and G are needed, found 'LX'"),
    ({"sliding_window": 8, "sliding_window_pattern": 0}, "must be from 1 to 1,024, found 0"),
    (
        {"model_type": "new", "full_attention_interval": 4},
        "linear-attention layers of this model_type are not supported",
    ),
    ({"layer_types": ["delta_attention"]}, "unknown kind of attention 'delta_attention'"),
    ({"is_encoder_decoder": True}, "encoder-decoder models are not supported"),
    ({"num_experts": 8}, "needed keys are missing: num_experts_per_tok (or num_experts_per_token,"),
    ({"model_type": "zamba2"}, "blocks whose weights several layers share are not modelled"),
    ({"model_type": "doge", "is_moe": True}, "is_moe: experts that a table of keys retrieves"),
    ({"model_type": "mvp", "use_prompt": True}, "use_prompt: prompts of layers are not supported"),
    ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, "expected M, *, - and E, found 'X'"),
    (
        {"model_type": "hunyuan_v1_moe", "num_experts": 4, "moe_topk": [1, 2]},
        "moe_topk: layers that differ are not supported",
    ),
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


@pytest.mark.parametrize("name", sorted(CONSTANTS.keys() & CONFIGS.keys()))
def test_constants_are_those_of_the_catalogue(name, tmp_path):
    model = models.get(written(tmp_path, {**CONFIGS[name], **CONSTANTS[name]}))
    stated = dict(model.numerics or ())
    stated = {key: value for key, value in stated.items() if value is not None}
    assert len(stated) >= len(CONSTANTS[name]) - 1
    known = dict(models.get(name).numerics or ())
    assert {key: known.get(key) for key in stated} == stated


@pytest.mark.parametrize(
    "wrong", [{"rope_theta": "10k"}, {"rms_norm_eps": True}, {"rope_scaling": {"type": "yarn", "factor": []}}]
)
def test_constants_of_wrong_types_are_refused(wrong, tmp_path):
    with pytest.raises(InputError, match="a number is needed"):
        models.get(written(tmp_path, {**CONFIGS["llama3.1-8b"], **wrong}))


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen2.5-VL-7B-Instruct", "qwen3-vl-235b-a22b", "moonshotai/Kimi-K2.5"]
)
def test_a_name_of_a_vision_language_model_names_its_tower_as_left_out(name):
    assert models.get(name).left_out == VISION
    assert models.get("qwen2.5-7b").left_out == ""


def test_lists_of_dense_and_expert_layers_are_read(tmp_path):
    config = CONFIGS["mixtral-8x7b"]
    layers = config["num_hidden_layers"]
    leading = models.get(
        written(tmp_path, config | {"mlp_layer_types": ["dense"] * 2 + ["sparse"] * (layers - 2)})
    )
    assert [leading.is_moe_layer(layer) for layer in range(4)] == [False, False, True, True]
    other = models.get(written(tmp_path, config | {"mlp_layer_types": ["dense", "sparse"] * (layers // 2)}))
    assert [other.is_moe_layer(layer) for layer in range(4)] == [False, True, False, True]


def test_an_unknown_kind_of_mlp_is_refused_by_its_key(tmp_path):
    with pytest.raises(InputError, match="did you mean 'sparse'"):
        models.get(written(tmp_path, CONFIGS["mixtral-8x7b"] | {"mlp_layer_types": ["dense", "spars"]}))


@pytest.mark.parametrize(
    "stated", [{"mlp_layer_types": ["sparse", "dense", "sparse", "sparse"]}, {"mlp_only_layers": [1]}]
)
def test_layers_with_experts_may_follow_no_rule(stated, tmp_path):
    shape = CONFIGS["mixtral-8x7b"] | {"num_hidden_layers": 4, **stated}
    model = models.get(written(tmp_path, shape))
    assert [model.is_moe_layer(layer) for layer in range(4)] == [True, False, True, True]
    period = models.get(written(tmp_path, shape | {"mlp_layer_types": ["dense", "sparse"] * 2}))
    assert (period.moe_layers, model.moe_layers) == (2, 3)


def test_an_embedding_may_be_narrower_than_the_layers(tmp_path):
    """OPT 350M: 331,196,416 parameters (facebook/opt-350m)."""
    config = {
        "model_type": "opt",
        "hidden_size": 1024,
        "word_embed_proj_dim": 512,
        "ffn_dim": 4096,
        "num_hidden_layers": 24,
        "num_attention_heads": 16,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "activation_function": "relu",
    }
    assert model_parameters(models.get(written(tmp_path, config))) == 331_196_416


def test_a_number_out_of_range_counts_only_in_a_key_that_is_read(tmp_path):
    limit = CONFIGS["llama3.1-8b"] | {"time_step_limit": [0.0, 1e308]}
    assert models.get(written(tmp_path, limit)).layers == 32
    with pytest.raises(InputError, match="hidden_size"):
        models.get(written(tmp_path, CONFIGS["llama3.1-8b"] | {"hidden_size": 1e308}))


def test_layers_of_sparse_attention_are_those_of_the_indexer(tmp_path):
    base = PUBLISHED_2025["glm-5"]
    kinds = {"layer_types": ["deepseek_sparse_attention"] * base["num_hidden_layers"]}
    assert models.get(written(tmp_path, base | kinds)).mla == models.get(written(tmp_path, base)).mla


@pytest.mark.parametrize(
    ("keys", "own"),
    [
        ({"indexer_types": (["full"] * 3 + ["shared"] * 3 + (["full"] + ["shared"] * 3) * 18)}, 21),
        ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, 21),
        ({"index_topk_pattern": "FS" * 39}, 39),
        ({}, 78),
    ],
)
def test_layers_that_share_an_indexer_have_neither_its_weights_nor_its_keys(tmp_path, keys, own):
    base = PUBLISHED_2025["glm-5"]
    model, all_own = (models.get(written(tmp_path, base | more)) for more in (keys, {}))
    queries, indexer = 2048 * 32 * 128, 6144 * (128 + 32)
    saved = model_parameters(all_own) - model_parameters(model)
    assert saved == pytest.approx((78 - own) * (queries + indexer), rel=2e-3)
    assert kv_token_bytes(all_own, 1, 1, None) - kv_token_bytes(model, 1, 1, None) == pytest.approx(
        (78 - own) * (128 + 4)
    )


@pytest.mark.parametrize("kind", [None, "", 3, ["dense"]])
def test_entries_that_are_no_kind_of_layer_are_refused(tmp_path, kind):
    base = CONFIGS["mixtral-8x7b"]
    for key in ("layer_types", "mlp_layer_types"):
        with pytest.raises(InputError, match=key):
            models.get(written(tmp_path, base | {key: [kind] * base["num_hidden_layers"]}))
    hybrid = PUBLISHED_2025["nemotron-3-nano-30b-a3b"] | {"hybrid_override_pattern": None}
    with pytest.raises(InputError, match="hybrid_override_pattern"):
        models.get(written(tmp_path, hybrid | {"layers_block_type": [kind, "mamba"]}))
