"""Answers that a verifier scores."""

import pytest

from core.errors import InputError
from core.loading import build
from simulator.serving.workload.programs.samples import Samples
from simulator.serving.workload.programs.verified import VerifiedAnswers
from tests.simulator.serving.test_trees import calls_of


def test_each_answer_is_verified_as_often_as_asked():
    answers, checks = calls_of(VerifiedAnswers(count=4, checks=3, verdict=50))
    assert [one.output for one in answers] == [128] * 4
    assert [(one.prompt, one.output) for one in checks] == [(768, 50)] * 12
    # A verification repeats its answer's spans, and no other answer's.
    assert len({one.prefix for one in checks}) == 4
    assert {one.prefix[:10] for one in checks} == {answers[0].prefix}


def test_a_beam_goes_on_from_those_kept():
    turns = calls_of(VerifiedAnswers(count=6, keep=2, rounds=3, checks=1))
    assert [len(one) for one in turns] == [6] * 6
    for answers, scores, following in zip(turns[::2], turns[1::2], turns[2::2], strict=False):
        assert len({one.prefix for one in following}) == 2
        assert {one.prefix for one in following} <= {one.prefix for one in scores}
        assert {one.prompt for one in following} == {answers[0].prompt + 128}
    assert VerifiedAnswers(count=6, keep=2, rounds=3).depth == 6


def test_without_checks_and_rounds_it_is_samples():
    assert calls_of(VerifiedAnswers(count=5, checks=0)) == calls_of(Samples(count=5))


def test_more_kept_than_written_is_refused():
    with pytest.raises(InputError, match="above `count`"):
        build(VerifiedAnswers, {"count": 2, "keep": 3}, "test")
