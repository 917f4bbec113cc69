"""Adapters in the steady states of a search."""

import pytest

import meshwright as mw
from planner.execution import Execution
from planner.serving.refine import refine_serving

ASKED = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 1,
    "workload": {
        "kind": "serving",
        "requests": 1000,
        "arrivals": {"kind": "poisson", "rate": 10},
        "input": 500,
        "output": 200,
        "slo": {"ttft": 1.0, "tpot": 0.03},
    },
}


def answer(adapters):
    deployment = {"engine": "vllm-0.19"} | ({} if adapters is None else {"adapters": adapters})
    return mw.deploy({**ASKED, "deployment": deployment}, objective="goodput", refine=0, top=1, split=False)


@pytest.mark.slow
def test_rates_with_adapters_are_those_of_the_event_engine():
    alone, adapted = answer(None), answer({"count": 50, "rank": 32})
    assert adapted.best.goodput < 0.5 * alone.best.goodput
    _, run = next(iter(refine_serving(adapted.search.question, adapted.search.plans[:1], Execution())))
    assert adapted.best.goodput == pytest.approx(run.goodput, rel=0.05, abs=run.half_width)


def test_adapters_take_kv():
    alone, adapted = (answer(one).best.groups[0].shape for one in (None, {"count": 50, "rank": 32}))
    block = adapted.kv_token_bytes
    taken = (alone.kv_tokens - adapted.kv_tokens) * block
    # 50 adapters of rank 32: two matrices of each product, 16 bits.
    features = 2 * 4096 * 2 + 2 * (4096 + 1024) + 3 * (4096 + 14336)
    assert taken == pytest.approx(50 * 2 * 32 * features * 32, rel=0.01)


def test_merged_adapters_are_left_to_the_event_engine():
    merged = answer({"count": 3, "rank": 16, "kernel": "merged"})
    assert merged.best.goodput == answer(None).best.goodput
