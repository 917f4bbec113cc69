"""The Model noun: its counts against published ones and against each other, and what it refuses."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import InputError
from simulator.models import Model, models
from simulator.ops.counts import (
    active_parameters,
    attention_flops_per_token,
    attention_parameters,
    flops_per_token,
    matmul_flops_per_token,
    model_parameters,
)

TINY = {"name": "tiny", "layers": 4, "hidden": 64, "heads": 8, "feed_forward": 256, "vocabulary": 1000}

# Vectors that Model leaves out, which the publication counts (norm of the embedding, offset of
# learned positions, attention sinks, ...), are below this share everywhere.
SMALL_VECTORS = 2e-5

# Where the publication's own figure does not follow from its own shape.
LOOSE = {
    "glm-4.5": 0.007,  # stated with the multi-token-prediction layer and without embeddings
    "glm-4.5-air": 0.012,
    "qwen3.5-397b-a17b": 0.0017,  # the rounded name; the shape has 396.3
    "glm-5": 0.0012,  # the indexer of its sparse attention is left out
    "grok-1": 0.006,  # stated as 314 billion, the released shape has 315.7
    "nemotron-4-15b": 0.005,  # sum of two rounded figures
    "falcon-180b": 0.009,  # the rounded name
    "ministral-3-8b": 0.011,  # the card cuts 8.49 to 8.4
    "ernie-4.5-21b-a3b": 0.04,  # the name cuts 21.8 to 21
}


def rounding(stated: int) -> float:
    """Half a unit of the last digit that a publication states."""
    digits = len(str(stated)) - len(str(stated).rstrip("0"))
    return 0.5 * 10**digits


@pytest.mark.parametrize("name", models.names())
def test_parameters_agree_with_the_publication(name):
    model = models.get(name)
    assert model.stated_parameters is not None and model.source
    allowed = LOOSE.get(name, SMALL_VECTORS) * model.stated_parameters
    if name not in LOOSE:
        allowed = max(allowed, rounding(model.stated_parameters))
    assert abs(model_parameters(model) - model.stated_parameters) <= allowed


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("mixtral-8x7b", 12.9),  # arXiv 2401.04088
        ("mixtral-8x22b", 39.1),  # Mistral's announcement: 39 billion of 141
        ("deepseek-v2", 21.0),  # arXiv 2405.04434, table 1: 21 billion
        ("deepseek-v2-lite", 2.66),  # 2.4 billion without the input embedding
        ("deepseek-v3", 37.0),  # arXiv 2412.19437: 37 billion
        ("qwen3-235b-a22b", 22.0),
        ("llama4-maverick", 17.0),
        ("llama4-scout", 17.0),
    ],
)
def test_active_parameters_agree_with_the_publication(name, billions):
    assert active_parameters(models.get(name)) / 1e9 == pytest.approx(billions, rel=0.02)


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b", "qwen3-30b-a3b"])
def test_active_parameters_without_the_embedding_agree(name):
    """These publications leave the input embedding out: 3.6, 5.1 and 3.3 billion less it."""
    stated = {"gpt-oss-20b": 3.61, "gpt-oss-120b": 5.13, "qwen3-30b-a3b": 3.04}[name]
    model = models.get(name)
    assert (active_parameters(model) - model.embedding_parameters) / 1e9 == pytest.approx(stated, rel=0.01)


def test_sc21_equation_2():
    """P = 12 l h^2 (1 + 13/12h + (V + s)/12lh), Narayanan et al. 2021; it leaves out the last norm."""
    for name in models.names():
        m = models.get(name)
        if not m.source.startswith("Narayanan"):
            continue
        brackets = 1 + 13 / (12 * m.hidden) + (m.vocabulary + m.max_sequence) / (12 * m.layers * m.hidden)
        assert model_parameters(m) - 2 * m.hidden == pytest.approx(
            12 * m.layers * m.hidden**2 * brackets, rel=1e-12
        )


def test_sc21_equation_3():
    """F = 72 B s l h^2 (1 + s/6h + V/12lh) for forward and backward without recomputation."""
    m = models.get("gpt3-175b")
    s = np.array([1024, 2048, 8192])
    expected = (
        72 * m.layers * m.hidden**2 * (1 + s / (6 * m.hidden) + m.vocabulary / (12 * m.layers * m.hidden))
    )
    np.testing.assert_allclose(3 * flops_per_token(m, s), expected, rtol=1e-12)


def test_causal_counting_halves_full_attention():
    m = models.get("llama3-8b")
    full = attention_flops_per_token(m, 4096)
    assert attention_flops_per_token(m, 4096, causal=True) == pytest.approx(full / 2)


def test_sliding_window_counts_what_a_loop_counts():
    m = Model.model_validate(TINY | {"sliding_window": 100, "attention_pattern": ["sliding", "full"]})
    for length in (50, 100, 1000):
        # A key counts half for the query at its own position, as s/2 counts the diagonal.
        seen = [min(position + 0.5, 100) for position in range(length)]
        expected = 2 * np.mean(seen) + 2 * length / 2
        found = attention_flops_per_token(m, length, causal=True)
        assert found == pytest.approx(4 * 64 * expected, rel=1e-12)


def test_flops_broadcast_over_sequence_lengths():
    m = models.get("deepseek-v3")
    lengths = np.array([[1024, 4096], [8192, 131072]])
    got = flops_per_token(m, lengths, causal=True)
    assert got.shape == lengths.shape
    assert got[1, 0] == flops_per_token(m, 8192, causal=True)


SHAPES = st.fixed_dictionaries(
    {
        "name": st.just("drawn"),
        "layers": st.integers(2, 40),
        "hidden": st.integers(1, 64).map(lambda n: 16 * n),
        "heads": st.sampled_from([4, 8, 16]),
        "kv_heads": st.sampled_from([1, 2, 4]),
        "feed_forward": st.integers(1, 5000),
        "vocabulary": st.integers(1, 5000),
        "activation": st.sampled_from(["gelu", "swiglu"]),
        "norm": st.sampled_from(["layernorm", "rmsnorm"]),
        "position": st.sampled_from(["learned", "rope"]),
        "bias": st.booleans(),
        "qk_norm": st.booleans(),
        "tied_embeddings": st.booleans(),
    }
)


@given(shape=SHAPES, first_dense=st.integers(0, 3), every=st.integers(1, 3), shared=st.integers(0, 2))
def test_layers_add_up_to_the_whole(shape, first_dense, every, shared):
    first_dense = min(first_dense, max(0, shape["layers"] - every))
    every = min(every, shape["layers"] - first_dense)
    moe = {"experts": 8, "top_k": 2, "feed_forward": 32, "shared_experts": shared}
    m = Model.model_validate(shape | {"moe": moe | {"first_dense_layers": first_dense, "every": every}})
    up, bias = 2 if m.gated else 1, m.bias
    width = m.hidden * (2 if m.norm == "layernorm" else 1)
    attention = m.hidden * (m.query_width + 2 * m.kv_width) + m.qkv_bias * (m.query_width + 2 * m.kv_width)
    attention += (m.value_width + bias) * m.hidden + 2 * m.head_dim * m.qk_norm

    def mlp(inner):
        return m.hidden * inner * (up + 1) + bias * (up * inner + m.hidden)

    together = mlp(32 * shared) if shared else 0  # shared experts are one MLP
    experts = m.moe_layers * (8 * mlp(32) + together + (m.hidden + bias) * 8)
    dense = (m.layers - m.moe_layers) * mlp(m.feed_forward)
    ends = m.embedding_parameters + m.output_parameters + m.norm_width
    layers = m.layers * (attention + m.norms_per_layer * width)
    assert model_parameters(m) == layers + experts + dense + ends
    assert sum(m.is_moe_layer(i) for i in range(m.layers)) == m.moe_layers
    assert active_parameters(m) == model_parameters(m) - m.moe_layers * (8 - m.moe.top_k) * mlp(32)


@given(shape=SHAPES)
def test_matmul_flops_are_two_per_weight(shape):
    """Without biases, norms and embeddings, what is left of the parameters are the matrices."""
    m = Model.model_validate(shape | {"bias": False, "qk_norm": False, "tied_embeddings": False})
    vectors = (m.layers * m.norms_per_layer + 1) * m.norm_width
    assert matmul_flops_per_token(m) == 2 * (model_parameters(m) - vectors - m.embedding_parameters)


def test_every_nth_layer_has_experts():
    m = models.get("llama4-maverick")
    assert [m.is_moe_layer(i) for i in range(4)] == [False, True, False, True]
    v3 = models.get("deepseek-v3")
    assert [v3.is_moe_layer(i) for i in range(5)] == [False, False, False, True, True]
    assert (v3.moe_layers, v3.dense_layers) == (58, 3)


def test_latent_attention_widths():
    m = models.get("deepseek-v3")
    assert (m.head_dim, m.v_head_dim, m.query_width, m.value_width) == (192, 128, 24576, 16384)
    assert m.kv_cache_width == 576
    query = 7168 * 1536 + 1536 + 1536 * 128 * 192
    key_value = 7168 * (512 + 64) + 512 + 512 * 128 * (128 + 128)
    assert attention_parameters(m) == query + key_value + 128 * 128 * 7168


def test_attention_kinds_repeat_over_the_layers():
    m = models.get("gpt-oss-20b")
    assert [m.attention_kind(i) for i in range(3)] == ["sliding", "full", "sliding"]
    assert m.layers_of_kind("sliding") == 12
    odd = Model.model_validate(
        TINY | {"layers": 5, "sliding_window": 9, "attention_pattern": ["sliding", "full"]}
    )
    assert (odd.layers_of_kind("sliding"), odd.layers_of_kind("full")) == (3, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 7}, "hidden (64) does not divide by heads (7)"),
        ({"kv_heads": 3}, "heads (8) does not divide by kv_heads (3)"),
        ({"kv_heads": 0}, "heads (8) does not divide by kv_heads (0)"),
        ({"layers": 0}, "layers: must be above 0, found 0"),
        ({"hidden": "64"}, "hidden: must be a whole number, found '64'"),
        ({"hiden": 64}, "unknown key 'hiden'; did you mean 'hidden'?"),
        ({"activation": "swigul"}, "did you mean 'swiglu'?"),
        ({"attention_pattern": ["sliding"]}, "sliding_window is not given"),
        ({"moe": {"experts": 2, "top_k": 4, "feed_forward": 8}}, "top_k (4) is more than experts (2)"),
        (
            {"moe": {"experts": 2, "top_k": 1, "feed_forward": 8, "first_dense_layers": 4}},
            "moe leaves no expert layer",
        ),
        ({"moe": {"experts": 2, "top_k": 1}}, "key 'moe.feed_forward' is missing"),
        ({"mla": {"kv_lora_rank": 8, "qk_nope_head_dim": 8}}, "key 'mla.v_head_dim' is missing"),
        ({"head_dim": 0}, "head_dim must be positive"),
    ],
)
def test_refusals_name_the_value_and_the_key(change, message):
    with pytest.raises(InputError) as error:
        models.get(TINY | change)
    assert message in str(error.value)
    assert "inline model" in str(error.value)


def test_a_missing_key_is_named():
    with pytest.raises(InputError, match="key 'heads' is missing"):
        models.get({key: value for key, value in TINY.items() if key != "heads"})


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3.1-70b"),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"),
        ("nvidia/Kimi-K2.5-NVFP4", "kimi-k2"),
        ("google/gemma-3-27b-it", "gemma3-27b"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-30b-a3b"),
        ("opt-13b", "opt-13b"),
        ("opt-1.3b", "opt-1.3b"),
        ("acme/unheard-of-7b", None),
    ],
)
def test_names_in_use_mean_models_of_the_catalogue(name, model):
    assert models.resolve(name) == model


def test_no_alias_means_two_models():
    spellings = [spelling for m in models for spelling in (m.name, *m.aliases)]
    assert len({models.resolve(spelling) for spelling in spellings}) == len(models.names())
    assert all(models.resolve(alias) == m.name for m in models for alias in m.aliases)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"mtp_passes": 2, "mtp_block": ()}, "goes with mtp_block"),
        ({"mtp_block": (7, 88)}, "88 is not one of 88 layers"),
        ({"mtp_layers": 1}, "without mtp_layers"),
    ],
)
def test_a_block_of_further_predictions_is_of_layers_that_there_are(changes, problem):
    stated = models.get("nemotron-3-super-120b-a12b").model_dump(exclude_defaults=True)
    with pytest.raises(ValueError, match=problem):
        Model.model_validate({**stated, **changes})


def test_layers_without_an_mlp_have_no_experts():
    hybrid = models.get("nemotron-3-nano-30b-a3b")
    assert (hybrid.moe_layers, hybrid.dense_layers) == (23, 0)
    assert active_parameters(hybrid) == pytest.approx(
        3.6e9, rel=0.02
    )  # its report: 3.2 without the embeddings
