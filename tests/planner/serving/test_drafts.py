"""Speculation in the search: what is tried, and what its steady states share with the event engine."""

from dataclasses import replace

import numpy as np
import pytest

import meshwright as mw
from core.errors import InputError
from meshwright.questions.serving import serving_question
from meshwright.reports.serving_plans import describe_deployments
from planner.serving.deployment import scenario_of
from planner.serving.drafts import measured_on, usual_drafts
from planner.serving.replica_cases import MIXED, ReplicaCases
from planner.serving.shapes import choices, shapes
from simulator.models import models
from simulator.serving.question.speculation import RANDOM, Speculation, published_acceptance

ENGINE = "vllm-0.19"
ASKED = {"model": "qwen3-next-80b-a3b", "cluster": "dgx-h100", "gpus": 4, "isl": 1000, "osl": 200}
ASKED |= {"ttft": 1.0, "tpot": 0.03}
ONE = {"tensor": 4, "data": 1, "pipeline": 1, "expert": 1}


def test_models_with_heads_are_tried_with_them_and_others_are_not():
    told = [
        "" if one is None else f"{one.kind}:{one.tokens}"
        for one in usual_drafts(models.get("deepseek-v3"), ENGINE)
    ]
    assert told == ["", "mtp:1", "mtp:2", "mtp:3"]
    assert usual_drafts(models.get("llama3.1-8b"), ENGINE) == (None,)


@pytest.fixture(scope="module")
def found():
    return mw.deploy(**ASKED, fix=ONE, split=False, refine=0).search


def test_drafts_are_told_and_written_into_the_scenario(found):
    drafted = found.guessed
    deployment = scenario_of(found.question, drafted)["deployment"]
    assert deployment["speculation"]["kind"] == "mtp"
    assert "mtp:" in drafted.describe()
    told = [entry["pools"][0].get("speculation") for entry in describe_deployments(found, {})["deployments"]]
    assert set(told) == {None, "mtp:1", "mtp:2", "mtp:3"}
    assert told[0] is None


def test_gains_of_an_assumed_acceptance_are_told_beside_the_ranking(found):
    assert found.plans[0].groups[-1].shape.pool.speculation is None
    assert found.guessed.groups[-1].shape.pool.speculation.assumed
    assert found.guessed.goodput > found.plans[0].goodput
    told = describe_deployments(found, {})
    assert told["with_assumed_acceptance"]["goodput_requests_s"] == found.guessed.goodput


def test_published_acceptance_ranks_and_stands_in_the_scenario():
    drafts = usual_drafts(models.get("deepseek-v3"), ENGINE)
    assert not any(one.assumed for one in drafts[1:])
    assert [one.acceptance_by_position for one in drafts[1:]] == [[0.85], [0.85, 0.69], [0.85, 0.69, 0.58]]
    # 2.44 tokens a step with two proposals (lmsys.org/blog/2025-07-17-mtp), 3.20 with seven (Nebius).
    assert drafts[2].mean() == pytest.approx(2.44, abs=0.02)
    seven = Speculation(kind="mtp", tokens=7, acceptance_by_position=drafts[3].acceptance_by_position)
    assert seven.mean() == pytest.approx(3.20, abs=0.05)
    assert all(one.assumed for one in usual_drafts(models.get("qwen3-next-80b-a3b"), ENGINE)[1:])


def test_acceptance_measured_on_code_stands_for_text_and_is_told():
    model = models.get("glm-5")
    (drafts,) = (one for one in usual_drafts(model, ENGINE) if one is not None and one.tokens == 3)
    # 2.99 tokens a step with three proposals (InferenceX, glm5.2_mtp.yaml).
    assert drafts.mean() == pytest.approx(2.99, abs=0.02)
    assert measured_on(drafts, model) == " on code"
    assert measured_on(usual_drafts(models.get("deepseek-v3"), ENGINE)[1], models.get("deepseek-v3")) == ""
    stated = drafts.model_copy(update={"acceptance_by_position": [0.5]})
    assert measured_on(stated, model) == ""
    assert published_acceptance("mtp", "glm-5", RANDOM) is None


def test_a_checkpoint_with_heads_of_known_acceptance_ranks_with_them():
    asked = ASKED | {"model": "qwen3.5-35b-a3b", "gpus": 2}
    found = mw.deploy(**asked, fix=ONE | {"tensor": 2}, split=False, refine=0).search
    assert found.plans[0].groups[-1].shape.pool.speculation.kind == "mtp"
    assert any(plan.groups[-1].shape.pool.speculation is None for plan in found.plans)
    assert found.guessed is None


def test_fixed_drafts_alone_are_searched():
    values = dict.fromkeys(("rate", "share", "objective")) | ASKED | {"engine": ENGINE}
    for text, kinds in (("none", {None}), ("mtp:2", {2}), ("ngram:4", {4})):
        question = serving_question(None, values, ONE | {"speculation": text}, {})
        tried = {fields["speculation"] for fields in choices(question)}
        assert {one and one.tokens for one in tried} == kinds


@pytest.mark.parametrize(
    ("model", "text", "problem"),
    [
        ("llama3.1-8b", "mtp:1", "no heads of multi-token prediction"),
        ("llama3.1-8b", "llama3.2-1b:3", "draft model"),
        ("llama3.1-8b", "mtp:x", "needs a number"),
    ],
)
def test_drafts_that_cannot_be_searched_are_refused(model, text, problem):
    with pytest.raises(InputError, match=problem):
        mw.deploy(**(ASKED | {"model": model}), fix={"speculation": text}, top=1)


def test_cases_of_several_drafts_together_are_as_alone(found):
    question = replace(found.question, fix=ONE)
    kept = list(shapes(question, {}))
    every = ReplicaCases.of(question, kept, [MIXED])
    rates = 0.3 * every.curve.highest
    together = every.state(rates)
    for index in range(len(kept)):
        own = np.flatnonzero(every.shape == index)
        alone = every[own].state(rates[own])
        assert together.tpot_s[own] == pytest.approx(alone.tpot_s)
        assert together.stable[own].tolist() == alone.stable.tolist()


def test_certain_acceptance_divides_the_time_of_a_token():
    never = Speculation(kind="mtp", tokens=1, acceptance=0.0)
    often = Speculation(kind="mtp", tokens=1, acceptance=0.999)
    slow, fast = (
        mw.deploy(**ASKED, fix=ONE | {"speculation": one}, split=False, top=1, refine=0).best
        for one in (never, often)
    )
    assert slow.goodput < fast.goodput
