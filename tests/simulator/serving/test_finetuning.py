"""Fine-tuning tokens in the slack of decode steps: target, tokens, memory, refusals."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steps.finetuned import SlackSteps
from tests.simulator.serving.conftest import STEPS

TARGET_S = 0.05


def question(finetuning=None, rate=5.0, **deployment):
    return make_serving(
        {
            "model": "llama3.1-8b",
            "cluster": "dgx-a100-80gb",
            "workload": {
                "kind": "serving",
                "requests": 200,
                "arrivals": {"kind": "poisson", "rate": rate},
                "input": 200,
                "output": {"kind": "uniform", "low": 50, "high": 250},
            },
            "deployment": {**({"finetuning": finetuning} if finetuning else {}), **deployment},
        },
        "test",
        Path(),
    )


def test_steps_with_decodes_last_until_the_target():
    steps = SlackSteps(STEPS, TARGET_S, 2048, 4096)
    assert steps.step((), 4, 1000) == TARGET_S
    assert steps.step(((400, 0),), 0, 0) == STEPS.step(((400, 0),), 0, 0)
    assert steps.step(((4000, 0),), 4, 1000) == STEPS.step(((4000, 0),), 4, 1000) > TARGET_S
    first, growth, count = steps.stretch(4, 1000)
    assert (first, growth) == (TARGET_S, 0.0) and count >= 1


def test_steps_end_when_the_budget_is_full():
    steps = SlackSteps(STEPS, TARGET_S, 2048, 64)
    for prefills, decodes in (((), 4), (((32, 0),), 4)):
        prompt = sum(tokens for tokens, _ in prefills)
        alone, tuned = STEPS.step(prefills, decodes, 1000), 64 - decodes - prompt
        seconds = steps.step(prefills, decodes, 1000)
        both = STEPS.step((*prefills, (tuned, 0)), decodes, 1000) + tuned * steps.backward_s
        assert seconds == pytest.approx(both)
        assert alone < seconds < TARGET_S
        assert steps.tokens(decodes, 1000, prompt, seconds - alone) == tuned
    assert steps.step(((60, 0),), 4, 1000) == STEPS.step(((60, 0),), 4, 1000)
    first, growth, _ = steps.stretch(4, 1000)
    assert (first, growth) == (steps.step((), 4, 1000), STEPS.stretch(4, 1000)[1])


def test_tokens_fill_the_slack_and_no_more():
    steps = SlackSteps(STEPS, TARGET_S, 2048, 4096)
    slack = TARGET_S - STEPS.step((), 4, 8192)
    tokens = int(steps.tokens(4, 8192, 0, slack))
    for count, fits in ((tokens, True), (tokens + 10, False)):
        spent = STEPS.step(((count, 0),), 4, 8192) + count * steps.backward_s
        assert (spent <= TARGET_S + 2e-4) == fits
    assert steps.tokens(4, 8192, 0, 0.0) == 0


def test_a_stretch_makes_the_tokens_of_its_steps():
    steps = SlackSteps(STEPS, TARGET_S, 2048, 512)
    row = (np.array([value]) for value in (10 * TARGET_S, 10.0, 4.0, 0.0, 0.0))
    alone = TARGET_S - STEPS.step((), 4, 18)
    assert steps.tuned_tokens(*row) == pytest.approx(10 * steps.tokens(4, 18, 0, alone))


@pytest.mark.slow
def test_more_load_leaves_less_and_the_target_is_kept():
    runs = [serve(question({"tpot": TARGET_S}, rate)).to_dict() for rate in (0.5, 5.0, 12.0)]
    shares = [run["finetuning"]["share_of_peak"] for run in runs]
    assert 1.0 > shares[0] > shares[1] > shares[2] > 0.0
    assert all(run["tpot_s"]["p50"] == pytest.approx(TARGET_S, rel=0.05) for run in runs)
    assert "finetuning" not in serve(question()).to_dict()


def test_activations_take_blocks():
    whole, tuned = (
        question(asked).pools[0].costs for asked in (None, {"tpot": TARGET_S, "length": 8192, "kept": 1.0})
    )
    activations = 8192 * 32 * 4096 * 34
    block = whole.kv_token_bytes * question().pools[0].options.block_tokens
    assert whole.kv_blocks - tuned.kv_blocks == int(activations / block)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"finetuning": {"tpot": 0.001}}, "no slack: one decode step takes"),
        ({"finetuning": {"tpot": 0.05}, "pipeline": 2}, "excludes"),
        ({"finetuning": {"tpot": 0.05}, "speculation": {"kind": "ngram"}}, "one token a sequence"),
    ],
)
def test_senseless_combinations_are_refused(change, message):
    with pytest.raises(InputError, match=message) as caught:
        question(**change)
    assert "deployment.finetuning" in str(caught.value)
