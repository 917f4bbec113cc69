"""Images in the prompts of a search for deployments."""

import pytest

import meshwright as mw
from core.errors import InputError
from planner.execution import Execution
from planner.serving.refine import refine_serving

ASKED = {"model": "qwen3-vl-8b", "cluster": "dgx-h100", "gpus": 1, "isl": 200, "osl": 100}
SETTINGS = {"ttft": 1.0, "tpot": 0.05, "objective": "goodput", "refine": 0, "top": 1, "split": False}


def answer(images=None, **more):
    return mw.deploy(**{**ASKED, **SETTINGS, **more}, images=images)


def test_images_are_tokens_of_the_prompt_and_time_of_its_steps():
    text, seeing = answer(), answer("2x1280x720")
    assert seeing.search.question.prompt == text.search.question.prompt + 2 * 880
    longer = answer(isl=200 + 2 * 880)
    assert seeing.best.goodput < longer.best.goodput < text.best.goodput


def test_more_images_carry_less():
    goodputs = [answer(images).best.goodput for images in ("1x640x480", "2x640x480", "8x640x480")]
    assert goodputs == sorted(goodputs, reverse=True)


@pytest.mark.slow
def test_rates_with_images_are_those_of_the_event_engine():
    seeing = answer("2x1280x720")
    _, run = next(iter(refine_serving(seeing.search.question, seeing.search.plans[:1], Execution())))
    assert seeing.best.goodput == pytest.approx(run.goodput, rel=0.08, abs=run.half_width)


def test_a_text_model_sees_no_images():
    with pytest.raises(InputError, match="has no vision tower"):
        answer("2x1280x720", model="llama3.1-8b")
