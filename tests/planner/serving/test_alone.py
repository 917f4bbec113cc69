"""A replica alone is itself beside others: pipelines, ranks and pools in the same arrays change nothing."""

from collections import Counter

import numpy as np
import pytest

from meshwright.questions.serving import serving_question
from planner.serving.roles import on_ladder
from planner.serving.score import CLOSE, ReplicaCases, largest_rate
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
    rate = cases.highest_stable_rate() * random.uniform(0.05, 0.95, len(cases))
    whole = cases.state(rate)
    for number in random.choice(len(cases), 60, replace=False):
        alone = cases[np.array([number])].state(rate[[number]])
        for name in FIGURES:
            expected = getattr(whole, name)[number]
            assert getattr(alone, name)[0] == pytest.approx(expected, rel=1e-9, abs=1e-9), name


def test_rungs_do_not_depend_on_the_trial_rates(cases):
    """Searches below other bounds end at the same rung, which is at most a step below what they found.

    Two in a hundred may differ: where a batch grows out of the graphs, a state may be that of a larger batch.
    """
    some = cases[np.arange(0, len(cases), 9)]
    free = largest_rate(some)
    rungs = on_ladder(some, free)
    for bound in (1.0, 1.7, 3.1):
        other = largest_rate(some, most=np.maximum(1.01 * bound * free, 1e-3))
        assert np.mean(on_ladder(some, other) == rungs) >= 0.98
    assert (rungs <= free * (1 + 2 * CLOSE)).all() and (rungs >= free * (1 - CLOSE)).all()
