"""Page, trace and band of a step of post-training; formats and shares of memory in the search."""

from __future__ import annotations

import json
from functools import cache

import pytest

import meshwright as mw
from meshwright.jobs.rl import write_trace

QUESTION = {
    "title": "small <b>",
    "model": "llama3.2-1b",
    "cluster": "dgx-h100",
    "gpus": 16,
    "workload": {
        "kind": "rl",
        "prompts": 16,
        "samples": 8,
        "mini_batch": 64,
        "input": 100,
        "output": {"kind": "lognormal", "median": 400, "sigma": 0.5, "most": 1000},
    },
    "schedule": {"kind": "one-step-off", "split": {"train": 8, "generate": 8}},
}


@cache
def step():
    return mw.simulate(QUESTION)


def test_a_page_shows_both_roles_and_escapes_the_title(tmp_path):
    step().save(tmp_path / "step.html")
    text = (tmp_path / "step.html").read_text()
    assert "rollout engine" in text and "trainer" in text
    assert "small <b>" not in text


def test_a_trace_has_a_thread_a_role_and_the_same_bytes(tmp_path):
    for name in ("first.json", "second.json"):
        write_trace(step(), tmp_path / name)
    first, second = ((tmp_path / name).read_bytes() for name in ("first.json", "second.json"))
    assert first == second
    events = json.loads(first)["traceEvents"]
    assert {each["args"]["name"] for each in events if each["ph"] == "M"} == {"trainer", "rollout engine"}


def test_the_band_holds_the_step_and_comes_from_both_halves():
    report = step().to_dict()
    low, high = report["band_s"]
    assert low < report["step_time_s"] < high
    assert high - low > 0.02 * report["step_time_s"]


def test_eight_bit_rollouts_are_told_but_not_ranked_and_a_stated_share_of_memory_stays():
    stated = QUESTION | {"roles": {"generate": {"options": {"memory_share": 0.4}}}}
    ranking = mw.plan(stated, staleness=0, top=1)
    assert "fp8" in ranking.search.more
    generate = ranking.search.plans[0].data["roles"]["generate"]
    assert "weights" not in generate
    assert generate["options"]["memory_share"] == pytest.approx(0.4)
