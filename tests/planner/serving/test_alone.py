"""A replica alone is itself beside others: pipelines, ranks and pools in the same arrays change nothing."""

from collections import Counter

import numpy as np
import pytest

from meshwright.questions.serving import serving_question
from planner.serving.replica_cases import ReplicaCases, largest_rate
from planner.serving.shapes import shapes

ASKED = dict.fromkeys(("share", "objective", "rate")) | {"isl": 2000, "osl": 300, "ttft": 1.0, "tpot": 0.05}
FIGURES = ("ttft_s", "queue_s", "tpot_s", "tpot_spread_s", "decode_s", "batch", "step_s", "watts")


@pytest.fixture(scope="module", params=["vllm-0.11", "tensorrt-llm-1.2", "sglang-0.5.12"])
def cases(request):
    asked = {**ASKED, "model": "qwen3-30b-a3b", "cluster": "dgx-h100", "gpus": 4, "engine": request.param}
    question = serving_question(None, asked, {}, {})
    return ReplicaCases.of(question, list(shapes(question, Counter())), (0, 1, 2)).shared_by(2)


def test_a_state_alone_is_that_among_others(cases):
    """Replicas of one stage had the spread and the prompts of pipelines beside them: 22 % of a goodput."""
    random = np.random.default_rng(0)
    rate = cases.curve.highest * random.uniform(0.05, 0.95, len(cases))
    whole = cases.state(rate)
    for number in random.choice(len(cases), 60, replace=False):
        alone = cases[np.array([number])].state(rate[[number]])
        for name in FIGURES:
            expected = getattr(whole, name)[number]
            assert getattr(alone, name)[0] == pytest.approx(expected, rel=1e-9, abs=1e-9), name


def test_the_largest_rate_alone_is_that_among_others(cases):
    whole = largest_rate(cases)
    for number in np.random.default_rng(1).choice(len(cases), 60, replace=False):
        assert largest_rate(cases[np.array([number])])[0] == whole[number]


def test_targets_hold_up_to_the_largest_rate_and_not_beyond(cases):
    """No rate above a missed one is taken: at no share of the largest rate do the targets fail."""
    rates = largest_rate(cases)
    some = rates > 0
    for share in (*np.linspace(0.02, 1.0, 50), *np.linspace(1.01, 2.0, 25)):
        meets = cases.meets(share * rates)
        assert (meets[some] == (share <= 1.0)).all()
