"""Deadlines of programs: stages, urgency, dispatch by speed, and what reports say."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.workload.programs.text2sql import MOST_CORRECTIONS, Text2Sql


def question(program, deployment=None, **workload):
    return {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 300,
            "arrivals": {"kind": "poisson", "rate": 20},
            "input": 400,
            "output": {"kind": "uniform", "low": 10, "high": 90},
            "program": program,
            **workload,
        },
        "deployment": {"options": {"scheduler": "chunked", "max_sequences": 8}, **(deployment or {})},
    }


def run(*args, **kwargs):
    return serve(make_serving(question(*args, **kwargs), "test", Path()))


def stages(program, seed=0):
    draws = iter(range(10, 10_000))
    return list(
        program.calls(
            lambda: (640, next(draws)), lambda n: tuple(range(max(n, 0))), (), np.random.default_rng(seed)
        )
    )


def test_stages_of_text2sql():
    certain = stages(Text2Sql(candidates=4, fail=0.0))
    assert [len(calls) for calls in certain] == [1, 4, 1]
    assert len(certain) == Text2Sql(candidates=4).depth
    linking, candidates, (choice,) = certain[0][0], certain[1], certain[2]
    assert {one.prompt for one in candidates} == {linking.prompt + linking.output}
    assert choice.prompt == candidates[0].prompt + sum(one.output for one in candidates)
    failing = stages(Text2Sql(candidates=4, fail=0.99))
    assert len(failing) == 3 + MOST_CORRECTIONS
    # Each stage ends in a part of the time left; the last one may use all of it.
    assert all(0 < calls[0].share < 1 for calls in failing[:-1]) and failing[-1][0].share == 1.0


def test_the_share_of_programs_within_the_deadline():
    single = run({"kind": "single", "deadline": 0.1}, warmup=0)
    columns = single.records.columns()
    met = (columns["last_s"] - columns["arrival_s"] <= 0.1).mean()
    assert 0 < met < 1 and single.to_dict()["deadlines_met"] == met
    assert "deadlines_met" not in run({"kind": "single"}).to_dict()


def test_whole_programs_count():
    result = run({"kind": "text2sql", "deadline": 60, "candidates": 2, "fail": 0}, warmup=0)
    columns, seconds = result.records.columns(), result.fleet.program_seconds
    # Four requests a program; the limit may cut the last programs.
    counts = np.bincount(columns["program"])[1:]
    whole = np.flatnonzero(counts == 4) + 1
    spans = [
        columns["last_s"][columns["program"] == one].max()
        - columns["arrival_s"][columns["program"] == one].min()
        for one in whole
    ]
    assert set(np.round(seconds, 9)) <= set(np.round(spans, 9)) and len(seconds) > 0.8 * len(whole)


def test_urgency_without_deadlines_changes_nothing():
    chunked, urgent = (
        run({"kind": "conversation", "turns": 2}, {"options": {"scheduler": name, "max_sequences": 8}})
        for name in ("chunked", "urgency")
    )
    # A stretch that an arrival cuts sums to the same seconds but for rounding.
    for name in ("first_s", "last_s"):
        ours, theirs = (one.records.columns()[name] for one in (urgent, chunked))
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)


@pytest.mark.slow
def test_urgency_shortens_the_deadline_that_most_programs_meet_where_a_queue_forms():
    def tail(scheduler):
        program = {"kind": "text2sql", "deadline": 2, "candidates": 3}
        deployment = {"options": {"scheduler": scheduler, "max_sequences": 4}}
        arrivals = {"kind": "poisson", "rate": 6.5}
        return run(program, deployment, requests=3000, arrivals=arrivals).to_dict()["program_s"]["p95"]

    assert tail("urgency") < 0.9 * tail("chunked")


@pytest.mark.slow
def test_the_soonest_replica_is_the_fast_one_until_it_is_busy():
    pools = [{"name": "slow", "cluster": "a6000-8"}, {"name": "fast", "cluster": "dgx-h100"}]
    deployment = {"pools": pools, "router": "soonest"}

    def share(rate):
        found = run({"kind": "single"}, deployment, arrivals={"kind": "poisson", "rate": rate})
        return (found.records.columns()["replica"] == 1).mean()

    assert share(0.5) == 1.0
    assert 0.5 < share(200) < 1.0


def test_a_deadline_that_no_replica_meets_alone_is_refused():
    with pytest.raises(InputError, match=r"no replica meets a deadline of 0\.01 s alone") as caught:
        run({"kind": "text2sql", "deadline": 0.01})
    assert "workload.program.deadline" in str(caught.value)
