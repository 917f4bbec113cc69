"""Encoders: parameters, attention to all tokens, and questions that they answer."""

import json

import numpy as np
import pytest

import meshwright as mw
from core.errors import InputError
from hwmodels.cluster import clusters
from meshwright.questions.serving import serving_question
from simulator.models import models
from simulator.ops.counts import model_parameters
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.steps.price import StepPrice

BERT = {
    "model_type": "bert",
    "hidden_act": "gelu",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "max_position_embeddings": 512,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}
ROBERTA = BERT | {"model_type": "xlm-roberta", "max_position_embeddings": 514, "type_vocab_size": 1}
MODERN = {
    "model_type": "modernbert",
    "hidden_activation": "gelu",
    "hidden_size": 768,
    "intermediate_size": 1152,
    "max_position_embeddings": 8192,
    "num_attention_heads": 12,
    "num_hidden_layers": 22,
    "global_attn_every_n_layers": 3,
    "local_attention": 128,
    "vocab_size": 50368,
}
DISTILLED = {
    "model_type": "distilbert",
    "activation": "gelu",
    "dim": 768,
    "hidden_dim": 3072,
    "max_position_embeddings": 512,
    "n_heads": 12,
    "n_layers": 6,
    "vocab_size": 30522,
}
VIT = {
    "model_type": "vit",
    "architectures": ["ViTForImageClassification"],
    "hidden_act": "gelu",
    "hidden_size": 768,
    "id2label": {str(label): "a kind" for label in range(1000)},
    "image_size": 224,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "patch_size": 16,
}
FLAN_XL = {
    "model_type": "t5",
    "is_encoder_decoder": True,
    "d_ff": 5120,
    "d_kv": 64,
    "d_model": 2048,
    "feed_forward_proj": "gated-gelu",
    "num_heads": 32,
    "num_layers": 24,
    "tie_word_embeddings": False,
    "vocab_size": 32128,
}
ELEVEN = FLAN_XL | {
    "d_ff": 65536,
    "d_kv": 128,
    "d_model": 1024,
    "num_heads": 128,
    "feed_forward_proj": "relu",
    "tie_word_embeddings": True,
}
BART = {
    "model_type": "bart",
    "is_encoder_decoder": True,
    "activation_function": "gelu",
    "d_model": 1024,
    "max_position_embeddings": 1024,
    "vocab_size": 50264,
    **{
        f"{stack}_{name}": value
        for stack in ("encoder", "decoder")
        for name, value in (("attention_heads", 16), ("ffn_dim", 4096), ("layers", 12))
    },
}
WHISPER = BART | {
    "model_type": "whisper",
    "d_model": 1280,
    "num_mel_bins": 128,
    "vocab_size": 51866,
    "encoder_layers": 32,
    "decoder_layers": 4,
    "encoder_attention_heads": 20,
    "encoder_ffn_dim": 5120,
    "decoder_ffn_dim": 5120,
}
DECODER_OF = {"t5": FLAN_XL, "bart": BART, "whisper": WHISPER}
PUBLISHED = [
    (FLAN_XL, 2_849_757_184),
    (FLAN_XL | {"architectures": ["T5EncoderModel"]}, 1_223_527_424),
    (ELEVEN, 11_307_321_344),
    (FLAN_XL | {"model_type": "umt5", "tie_word_embeddings": True}, 2_784_006_144),
    (BART, 406_290_432),
    (BART | {"model_type": "mbart", "vocab_size": 250027}, 610_851_840),
    (BART | {"model_type": "pegasus", "vocab_size": 96103}, 453_225_472),
    (BART | {"model_type": "m2m_100", "vocab_size": 128112}, 483_905_536),
    (WHISPER, 808_878_080),
    (WHISPER | {"decoder_layers": 32}, 1_543_490_560),
    (VIT, 86_567_656),
]


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        *PUBLISHED,
        (BERT, 335_141_888),
        (ROBERTA | {"vocab_size": 250002}, 559_890_432),
        (MODERN, 149_014_272),
        (DISTILLED, 66_362_880),
    ],
)
def test_parameters_are_those_that_transformers_counts(config, parameters, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = models.get(str(tmp_path))
    assert model_parameters(model) == parameters
    assert not model.encoder_alone.causal and "no constant was chosen on an encoder" in model.left_out


def test_the_catalogue_holds_what_it_states():
    encoders = [models.get(name) for name in models.names() if not models.get(name).decoder_only]
    assert len(encoders) >= 7
    assert {model.name: model_parameters(model) for model in encoders} == {
        model.name: model.stated_parameters for model in encoders
    }


@pytest.mark.parametrize("key", ["position_embedding_type", "is_decoder"])
def test_other_positions_and_decoders_are_refused(key, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(BERT | {key: "relative_key"}), encoding="utf-8")
    with pytest.raises(InputError, match=f"{key}: only encoders with learned positions"):
        models.get(str(path))


def test_attention_to_all_tokens_takes_up_to_twice_that_to_earlier_ones():
    encoder, engine = models.get("bge-m3"), engines.get("vllm-0.19")
    decoder = encoder.model_copy(update={"causal": True})
    all_, earlier = (
        StepPrice(model, clusters.get("dgx-h100").resized(1), Pool(), engine) for model in (encoder, decoder)
    )
    long = float(all_.prefill_attention(8192, 8192) / earlier.prefill_attention(8192, 8192))
    assert 1.4 < long < 2.05
    assert np.all(all_.linear(1024) == earlier.linear(1024))
    # No output layer over 250,002 words.
    assert float(all_.head(8)) == 0.0 < float(earlier.head(8))


def _asked(**changed):
    values = dict.fromkeys(("share", "engine", "objective", "tpot", "rate"))
    values |= {"model": "bert-large", "cluster": "dgx-h100", "gpus": 1, "isl": 384, "ttft": 0.1, "osl": 0}
    return serving_question(None, values | changed, {}, {})


@pytest.mark.parametrize("kind", DECODER_OF)
def test_the_encoder_alone_is_asked_without_an_output(kind, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(DECODER_OF[kind]), encoding="utf-8")
    model, path = models.get(str(tmp_path)), str(tmp_path)
    alone = _asked(model=path)
    assert alone.output == 1.0 and alone.model == model.encoder_alone and not alone.model.causal
    assert _asked(model=path, osl=20, engine="transformers").model == model
    with pytest.raises(InputError, match=f"runs no decoder with an encoder of kind {kind}; .*transformers"):
        _asked(model=path, osl=20, engine="sglang-0.5.12")


def test_the_answer_of_an_encoder_has_no_position():
    assert _asked(model="vit-base", isl=197).prompt == 197
    with pytest.raises(InputError, match="requests of 198 tokens are longer than the 197"):
        _asked(model="vit-base", isl=198)


def test_an_encoder_writes_no_tokens():
    assert _asked().output == 1.0
    with pytest.raises(InputError, match="is an encoder and writes no tokens"):
        _asked(osl=20)


def test_runs_of_decoders_are_no_evidence_for_an_encoder():
    search = mw.plan(model="bert-large", cluster="dgx-h100", gpus=8, seq_len=512, global_batch=256, top=1)
    known = search.found.confidence
    assert known is not None and known.evidence[0].nowhere


def test_a_published_server_of_bge_large_is_within_a_fifth():
    """text-embeddings-inference 0.6 on an L4: 1,150,000 tokens in 18.491 s, texts of 449 tokens
    (michaelfeil/infinity, docs/benchmarks, 0.0.25)."""
    found = mw.deploy(model="BAAI/bge-large-en-v1.5", cluster="l4-8", gpus=1, isl=449, osl=0, ttft=30, top=1)
    assert found.best.goodput * 449 == pytest.approx(1_150_000 / 18.491, rel=0.2)
