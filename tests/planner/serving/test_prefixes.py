"""Reuse of prompt prefixes in the search: system prompts and traces."""

import json

import pytest

import meshwright as mw
from planner.execution import Execution

ASKED = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 1, "isl": 4000, "osl": 100}
ASKED |= {"ttft": 0.5, "tpot": 0.03, "split": False, "top": 1, "limit": {"token_budget": 2048}}
ASKED |= {"refine": 0}


def best(**changed):
    return mw.deploy(**(ASKED | changed))


@pytest.mark.slow
def test_the_search_agrees_with_the_event_engine_on_a_system_prompt():
    found = best(prefix=3000, refine=1, execution=Execution(workers=1))
    run = found.refined[0]
    assert found.best.goodput == pytest.approx(run.goodput, rel=0.1, abs=run.half_width)


@pytest.mark.slow
def test_a_system_prompt_is_computed_once():
    alone, shared = best(), best(prefix=3000)
    assert shared.search.question.repeated == pytest.approx(3000, rel=0.03)
    assert shared.best.goodput > 1.7 * alone.best.goodput
    assert best(prefix="0.75").best.goodput == pytest.approx(shared.best.goodput)
    assert best(prefix="75%").best.goodput == pytest.approx(shared.best.goodput)


@pytest.mark.slow
def test_prompts_of_many_tenants_are_found_in_part():
    goodput = []
    for groups in (1, 1000, 100_000):
        workload = {"kind": "serving", "requests": 1000, "arrivals": {"kind": "poisson", "rate": 1.0}}
        workload |= {"input": 1000, "output": 100, "prefix": {"tokens": 3000, "groups": groups}}
        made = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 1, "workload": workload}
        goodput.append(mw.deploy(made, ttft=0.5, tpot=0.03, split=False, top=1, refine=0).best.goodput)
    assert goodput[0] > goodput[1] > goodput[2]


def trace(path, repeats):
    """A Mooncake trace of prompts of four blocks, three of them common where they repeat."""
    rows = []
    for index in range(200):
        common = [1, 2, 3] if repeats else [10_000 + 3 * index + block for block in range(3)]
        rows.append(
            {
                "timestamp": 100 * index,
                "input_length": 2048,
                "output_length": 50,
                "hash_ids": [*common, 10**6 + index],
            }
        )
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return str(path)


def test_a_trace_repeats_what_its_hashes_say(tmp_path):
    flags = {name: value for name, value in ASKED.items() if name not in ("isl", "osl")}
    again = mw.deploy(**flags, requests=trace(tmp_path / "again.jsonl", True), objective="goodput")
    never = mw.deploy(**flags, requests=trace(tmp_path / "never.jsonl", False), objective="goodput")
    assert again.search.question.repeated == pytest.approx(0.75 * 2048, rel=0.02)
    assert never.search.question.repeated == 0.0
    assert again.best.goodput > 2.0 * never.best.goodput
    assert again.search.question.rate == pytest.approx(10.0)
    assert mw.deploy(**flags, requests=str(tmp_path / "again.jsonl")).search.question.objective == "cost"


def test_an_engine_without_a_prefix_cache_computes_all(tmp_path):
    alone = best(engine="vllm-0.4").best.goodput
    assert best(engine="vllm-0.4", prefix=3000).best.goodput == pytest.approx(alone, rel=1e-3)
