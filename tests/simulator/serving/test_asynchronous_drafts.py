"""Drafts beside a pipeline: the law of its steps against an event simulation, limits, and refusals."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError, MeshwrightError
from simulator.serving.question.speculation import Speculation
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steps.asynchronous import AsynchronousSteps
from simulator.serving.steps.speculation_cases import SpeculativeCases
from tests.simulator.serving.roofline import RooflineSteps

STAGES, PASS_S, DRAFT_S = 8, 0.8, 0.05


def constant(seconds, stages=1):
    return RooflineSteps(stages=stages, fixed_s=seconds, token_s=0.0, kv_s=0.0, pair_s=0.0, busy_watts=1.0)


def speculation(acceptance, tokens=1):
    data = {"draft": "llama3.2-1b", "tokens": tokens, "acceptance": acceptance, "asynchronous": True}
    return Speculation.model_validate(data)


def simulated(acceptance, tokens, draft_s, rejections=4000, seed=3):
    """Seconds a token of runs that enter, cross the stages one behind the other, and are cancelled."""
    random, stage_s = np.random.default_rng(seed), PASS_S / STAGES
    now, made = 0.0, 0
    for _ in range(rejections):
        accepted = min(int(random.geometric(1.0 - acceptance)) - 1, 64)
        leaves = [now + stage_s * (stage + 1) for stage in range(STAGES)]
        proposed = now
        for _ in range(-(-accepted // tokens)):
            proposed = max(proposed + tokens * draft_s, leaves[0])
            enter = proposed
            for stage in range(STAGES):
                leaves[stage] = enter = max(enter, leaves[stage]) + stage_s
        now, made = leaves[-1], made + accepted + 1
    return now / made


@pytest.mark.parametrize("acceptance", [0.2, 0.5, 0.8, 0.9])
@pytest.mark.parametrize(("tokens", "draft_s"), [(1, DRAFT_S), (1, 0.2), (4, DRAFT_S)])
def test_the_law_of_a_step_is_that_of_an_event_simulation(acceptance, tokens, draft_s):
    steps = AsynchronousSteps(constant(PASS_S, STAGES), constant(draft_s), speculation(acceptance, tokens))
    assert steps.step((), 1, 100) / steps.pace == pytest.approx(
        simulated(acceptance, tokens, draft_s), rel=0.05
    )


def question(drafts, **deployment):
    return make_serving(
        {
            "model": "llama3.1-8b",
            "cluster": "a10g-8",
            "workload": {
                "kind": "serving",
                "requests": 20,
                "arrivals": {"kind": "closed", "concurrency": 1},
                "input": 128,
                "output": 400,
            },
            "deployment": {"pipeline": 4, **({"speculation": drafts} if drafts else {}), **deployment},
        },
        "test",
        Path(),
    )


def gap(drafts):
    return serve(question(drafts)).metrics.latencies["itl"].mean


def test_drafts_that_are_never_accepted_cost_nothing():
    never = {"draft": "llama3.2-1b", "tokens": 1, "acceptance": 0.0}
    alone = gap(None)
    assert gap({**never, "asynchronous": True}) == pytest.approx(alone, rel=0.02)
    assert gap(never) > 1.05 * alone


def test_the_run_has_the_step_of_its_law():
    drafts = {"draft": "llama3.2-1b", "tokens": 1, "acceptance": 0.7, "asynchronous": True}
    steps = question(drafts).pools[0].costs.steps
    assert gap(drafts) == pytest.approx(steps.step((), 1, 330) / steps.pace, rel=0.08)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "ngram", "draft": None},
        {"expanded": True},
        {"acceptance": [1.0, 2.0]},
    ],
)
def test_senseless_combinations_are_refused(change):
    drafts = {"draft": "llama3.2-1b", "acceptance": 0.7, "asynchronous": True, **change}
    with pytest.raises(MeshwrightError, match="asynchronous"):
        question({key: value for key, value in drafts.items() if value is not None})


def test_one_stage_and_the_search_are_refused():
    drafts = {"draft": "llama3.2-1b", "acceptance": 0.7, "asynchronous": True}
    with pytest.raises(InputError, match="found 1 stage") as caught:
        question(drafts, pipeline=1)
    assert "deployment.speculation.asynchronous" in str(caught.value)
    setting = question(drafts)
    with pytest.raises(InputError, match="simulated, not searched"):
        SpeculativeCases(None, setting.pools[0].pool.speculation, 32)
