"""Decoders that attend to an encoder: KV, the step that encodes, and a lone request by hand."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from simulator.models import models
from simulator.ops import SERVING, Batch, Rank
from simulator.ops.counts import layer_counts
from simulator.ops.layer import layer
from simulator.serving.encoders.prompts import EncoderPrice, PromptArrays, PromptSteps, encoder_table
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steps.capped import iteration_table, step_arrays
from simulator.serving.steps.memory import kv_token_bytes
from simulator.serving.steps.price import StepPrice

WHISPER = {
    "model": "whisper-large-v3",
    "cluster": "dgx-h100",
    "gpus": 1,
    "workload": {
        "kind": "serving",
        "requests": 3,
        "arrivals": {"kind": "closed", "concurrency": 1},
        "input": {"kind": "fixed", "tokens": 1500},
        "output": {"kind": "fixed", "tokens": 100},
    },
    "deployment": {"engine": "vllm-0.19"},
}


@pytest.fixture(scope="module")
def replica():
    model, cluster = models.get("bart-large"), clusters.get("dgx-h100").resized(1)
    question = model, cluster, Pool(), engines.get("vllm-0.6")
    decoder = iteration_table(StepPrice(*question), 4096, 64, 2048)
    return decoder, encoder_table(*question, 4096)


def test_kv_is_that_which_whisper_cpp_prints():
    """ggml-org/whisper.cpp issue 89, large-v2 on a V100: kv self size 70.00 MB of 448 tokens, kv cross size
    234.38 MB of 1,500."""
    token = kv_token_bytes(models.get("whisper-large-v3"), 1, 1, None) / 2**20
    assert (448 * token, 1500 * token) == pytest.approx((70.00, 234.38), abs=0.005)


def test_a_layer_of_t5_has_two_attentions_and_an_mlp():
    model = models.get("flan-t5-xl")
    (counts,) = layer_counts(model).values()
    assert (counts.attention, counts.mlp, counts.norms) == (8 * 2048**2, 3 * 2048 * 5120, 3 * 2048)
    # Keys of the encoder's output are projected where a batch has some, over all of its tokens.
    names = [op.name for op in layer(Rank(model, Batch.decode(8, 500), how=SERVING), "cross")]
    assert "cross_keys" not in names and names.count("cross_attention") == 1


def test_the_projected_keys_cost_what_their_product_does():
    model, cluster, engine = (
        models.get("flan-t5-xxl"),
        clusters.get("dgx-h100").resized(1),
        engines.get("vllm-0.19"),
    )
    price = EncoderPrice(model, cluster, Pool(), engine)
    alone = StepPrice(model.encoder_alone, cluster, Pool(), engine)
    more = float(price.inside_stages(4096) - alone.inside_stages(4096))
    flops = 2 * 4096 * 24 * 2 * 4096**2
    assert 0.5 < flops / more / cluster.device.peak_flops["bf16"] < 1.0


@pytest.mark.parametrize(("prompts", "tokens", "decodes", "keys"), [(1, 512, 0, 1), (4, 300, 50, 540)])
def test_arrays_price_the_steps_of_the_event_engine(replica, prompts, tokens, decodes, keys):
    steps = PromptSteps(*replica)
    cases = step_arrays(replica[:1], PromptArrays(replica[1:])).cases(0)
    chunks = [(tokens, 0)] * prompts
    right = steps.step(chunks, decodes, decodes * keys)
    assert cases.mixed_seconds(prompts * tokens, 0, decodes, keys, prompts) == pytest.approx(right, rel=1e-3)
    assert sum(steps.parts(chunks, decodes, decodes * keys).values()) == pytest.approx(right)
    assert cases.decode_seconds(9, 400) == pytest.approx(steps.step((), 9, 3600), rel=1e-6)


def test_a_lone_request_is_the_encoders_pass_and_a_step_a_token():
    setting = make_serving(WHISPER, "test", Path())
    steps = setting.pools[0].costs.steps
    assert isinstance(steps, PromptSteps)
    decoded = sum(steps.step((), 1, 1501 + token) for token in range(1, 100))
    by_hand = steps.step([(1500, 0)], 0, 0) + decoded
    records = serve(setting).records.columns()
    engine = engines.get("vllm-0.19")
    spent = np.mean(records["last_s"] - records["arrival_s"]) - engine.first_token_s.value
    assert spent == pytest.approx(by_hand, rel=0.05)


@pytest.mark.parametrize(
    ("deployment", "problem"),
    [
        ({"engine": "sglang-0.5.12"}, "sglang-0.5.12 runs no decoder with an encoder of kind whisper"),
        ({"engine": "vllm-0.19", "pipeline": 2}, "in one pool without pipeline"),
        ({"engine": "vllm-0.19", "speculation": {"kind": "ngram"}}, "in one pool without speculation"),
    ],
)
def test_what_is_not_modelled_beside_an_encoder_is_refused(deployment, problem):
    with pytest.raises(InputError, match=problem):
        make_serving({**WHISPER, "gpus": 2, "deployment": deployment}, "test", Path())
