"""Images in the prompts of a search for deployments."""

from pathlib import Path

import pytest

import meshwright as mw
from core.errors import InputError
from planner.execution import Execution
from planner.serving.deployment import scenario_of
from planner.serving.policies import overlapping, with_policies
from planner.serving.refine import refine_serving
from simulator.serving.scenario import make_serving

ASKED = {"model": "qwen3-vl-8b", "cluster": "dgx-h100", "gpus": 1, "isl": 200, "osl": 100}
SETTINGS = {"ttft": 1.0, "tpot": 0.05, "objective": "goodput", "refine": 0, "top": 1, "split": False}


def answer(images=None, **more):
    return mw.deploy(**{**ASKED, **SETTINGS, **more}, images=images)


def test_images_are_tokens_of_the_prompt_and_time_of_its_steps():
    text, seeing = answer(), answer("2x1280x720")
    assert seeing.search.question.prompt == text.search.question.prompt + 2 * 880
    longer = answer(isl=200 + 2 * 880)
    assert seeing.best.goodput < longer.best.goodput < text.best.goodput


@pytest.mark.slow
def test_more_images_carry_less():
    goodputs = [answer(images).best.goodput for images in ("1x640x480", "2x640x480", "8x640x480")]
    assert goodputs == sorted(goodputs, reverse=True)


@pytest.mark.slow
def test_rates_with_images_are_those_of_the_event_engine():
    seeing = answer("2x1280x720")
    _, run = next(iter(refine_serving(seeing.search.question, seeing.search.plans[:1], Execution())))
    assert seeing.best.goodput == pytest.approx(run.goodput, rel=0.08, abs=run.half_width)


@pytest.mark.slow
def test_encoders_take_devices_of_rank_1_and_the_plainest_is_chosen():
    """A replica behind an encoder carries more than one that encodes; of equal plans the plainest counts."""
    found = answer("2x1280x720", gpus=2, fix={"tensor": 1, "pipeline": 1}, tries={"encoder": [None, 1]})
    runs = {tried.policies["encoder"]: tried.run for tried in found.policies.runs}
    alone, beside = runs[None].goodput, runs[1].goodput
    assert beside > 0.5 * alone
    kept = beside <= alone or overlapping(runs[None], runs[1])
    assert (found.policies.best.policies["encoder"] is None) == kept
    setting = make_serving(
        with_policies(scenario_of(found.search.question, found.best), {"encoder": 1}), "", Path()
    )
    assert setting.gpus == 2
    assert (setting.encoders[0].devices, setting.pools[0].pool.replicas) == (1, 1)


@pytest.mark.parametrize(
    ("images", "more", "says"),
    [
        (None, {"tries": {"encoder": [1]}}, "no images"),
        ("2x1280x720", {"tries": {"encoder": [1]}}, "one replica"),
        ("2x1280x720", {"tries": {"encoder": [4]}, "gpus": 4, "fix": {"tensor": 1}}, "at most 3"),
    ],
)
def test_encoders_without_work_or_devices_are_refused(images, more, says):
    with pytest.raises(InputError, match=says):
        answer(images, **more)


def test_a_text_model_sees_no_images():
    with pytest.raises(InputError, match="has no vision tower"):
        answer("2x1280x720", model="llama3.1-8b")
