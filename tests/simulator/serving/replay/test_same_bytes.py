"""Replays over columns give the answers of the replicas' own loops, to the bit."""

from pathlib import Path

import numpy as np
import pytest

from simulator.serving.fleet import replayed
from simulator.serving.fleet.replayed import COMPILED, LISTS, LOOPS, run_as
from simulator.serving.replay import single, staged
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

CHAT = {
    "kind": "serving",
    "requests": 150,
    "arrivals": {"kind": "poisson", "rate": 9.0},
    "input": {"kind": "lognormal", "median": 700, "sigma": 0.9, "most": 3000},
    "output": {"kind": "lognormal", "median": 120, "sigma": 0.8, "most": 600},
}
SMALL = {"model": "llama3.1-8b", "cluster": "dgx-h100", "workload": CHAT}
LARGE = {"model": "llama2-70b", "cluster": "dgx-a100-80gb", "workload": CHAT}
FEW = {"kv_blocks": 400, "max_context": 8192, "token_budget": 512}
SHARED = {**CHAT, "prefix": {"tokens": 512, "groups": 12}}
STAGES = {"engine": "vllm-0.11", "tensor": 2, "pipeline": 3}
CASES = {
    "three replicas": {**SMALL, "deployment": {"replicas": 3}},
    "preempted": {**SMALL, "deployment": {"options": FEW}},
    "step by step": {**SMALL, "deployment": {"options": {**FEW, "asynchronous": False}}},
    "blocks kept for all of a request": {**SMALL, "deployment": {"options": {**FEW, "preemption": "none"}}},
    "no blocks found again": {**SMALL, "deployment": {"options": {**FEW, "prefix_caching": False}}},
    "whole prompts": {
        **SMALL,
        "deployment": {
            "options": {**FEW, "chunked_prefill": False, "admits_whole": True, "token_budget": 4096}
        },
    },
    "few slots": {**SMALL, "deployment": {"options": {"max_sequences": 3, "max_context": 8192}}},
    "stages": {**LARGE, "deployment": {**STAGES, "options": {"token_budget": 512, "max_context": 8192}}},
    "preempted in stages": {**LARGE, "deployment": {**STAGES, "options": {**FEW, "kv_blocks": 700}}},
    "prefixes": {**SMALL, "workload": SHARED, "deployment": {"replicas": 2}},
    "prefixes, preempted": {**SMALL, "workload": SHARED, "deployment": {"options": FEW}},
    "prefixes of two ids a unit": {
        **SMALL,
        "workload": SHARED,
        "deployment": {"options": {**FEW, "block_tokens": 24, "kv_blocks": 300}},
    },
    "prefixes in stages, preempted": {
        **LARGE,
        "workload": SHARED,
        "deployment": {**STAGES, "options": {**FEW, "kv_blocks": 700}},
    },
    "prompts first": {
        **SMALL,
        "workload": SHARED,
        "deployment": {"engine": "sglang-0.5.12", "options": {"kv_blocks": 9000, "max_context": 8192}},
    },
    "prompts first in stages, preempted": {
        **LARGE,
        "deployment": {**STAGES, "options": {**FEW, "kv_blocks": 700, "scheduler": "prefill-first"}},
    },
    "in flight": {**SMALL, "deployment": {"engine": "tensorrt-llm-1.2", "options": {"max_context": 8192}}},
    "exact budget": {**SMALL, "deployment": {"options": {**FEW, "scheduler": "exact-budget"}}},
    "powers of seconds": {**SMALL, "cluster": "dgx-a100-80gb", "deployment": {"options": FEW}},
}


def answers(data, form):
    """Every column of every record, and the sums over the steps of each replica."""
    with run_as(form):
        run = serve(make_serving(data, "case", Path()))
    arrays = dict(run.records.columns())
    for member in run.fleet.members:
        totals = member.meter.totals
        arrays[f"series of {member.index}"] = totals.series.bins
        arrays[f"sums of {member.index}"] = np.array(
            [totals.joules, totals.busy_s, totals.last_s, totals.kv_read, totals.output_tokens, member.last_s]
        )
        arrays[f"gaps of {member.index}"] = np.array(sorted(totals.gaps.items()))
    return arrays, run


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name, strict=True)


@pytest.fixture
def calls(monkeypatch):
    """How many replicas ran over columns."""
    seen = []
    run = replayed.run_replica

    def counted(*arguments):
        seen.append(arguments)
        return run(*arguments)

    monkeypatch.setattr(replayed, "run_replica", counted)
    return seen


@pytest.mark.parametrize("case", CASES)
def test_lists_give_the_bytes_of_the_loops(case, calls):
    wanted, _ = answers(CASES[case], LOOPS)
    assert not calls
    found, run = answers(CASES[case], LISTS)
    assert len(calls) == len(run.fleet.members)
    assert_same(found, wanted)
    if "preempted" in case:
        assert wanted["preemptions"].sum() > 20


ROUTED = {
    "least-loaded": {"options": FEW},
    "power-of-two": {"options": {"max_context": 8192}},
    "freeness": {"options": FEW},
    "prefix-aware": {"options": FEW},
    "scored": {"options": FEW, "router_options": {"load": 1.5, "queue": 0.7}},
}


def routed_fleet(router):
    """A fleet large enough that the loops keep arrays of what its router reads."""
    workload = {**SHARED, "requests": 300, "arrivals": {"kind": "poisson", "rate": 30.0}}
    return {**SMALL, "workload": workload, "deployment": {"router": router, "replicas": 17, **ROUTED[router]}}


@pytest.fixture
def fleets(monkeypatch):
    """How many fleets ran over columns."""
    seen = []
    run = replayed.run_fleet

    def counted(*arguments):
        seen.append(arguments)
        return run(*arguments)

    monkeypatch.setattr(replayed, "run_fleet", counted)
    return seen


@pytest.mark.parametrize("router", ROUTED)
def test_routers_over_lists_give_the_bytes_of_the_loops(router, fleets):
    data = routed_fleet(router)
    wanted, _ = answers(data, LOOPS)
    assert not fleets
    found, _ = answers(data, LISTS)
    assert len(fleets) == 1
    assert_same(found, wanted)
    assert len(set(wanted["replica"].tolist())) > 10


@pytest.mark.slow
def test_compiled_kernels_give_the_bytes_of_the_loops(calls, fleets):
    """In the user's cache, whose folder is that of these files: long runs of other tests need not compile."""
    pytest.importorskip("numba")
    for data in CASES.values():
        wanted, _ = answers(data, LOOPS)
        calls.clear()
        found, run = answers(data, COMPILED)
        assert len(calls) == len(run.fleet.members)
        assert {arguments[-1] for arguments in calls}.isdisjoint({single.run_single, staged.run_staged})
        assert_same(found, wanted)
    for router in ROUTED:
        wanted, _ = answers(routed_fleet(router), LOOPS)
        found, _ = answers(routed_fleet(router), COMPILED)
        assert_same(found, wanted)
    assert len(fleets) == len(ROUTED)


REFUSED = {
    "routers that kernels do not tell": {"deployment": {"replicas": 2, "router": "soonest"}},
    "closed clients": {"workload": {**CHAT, "arrivals": {"kind": "closed", "concurrency": 4}}},
    "failures": {
        "deployment": {"failures": {"at": [{"time": 3, "replica": 0}], "restore": 4}},
    },
    "other schedulers": {"deployment": {"options": {"scheduler": "static"}}},
    "speculation": {"deployment": {"speculation": {"kind": "ngram", "tokens": 3}}},
    "swaps": {"deployment": {"engine": "vllm-0.6", "options": {**FEW, "preemption": "swap"}}},
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_kernels_do_not_know_runs_in_the_loops(what, calls):
    data = {**SMALL, **REFUSED[what]}
    data["workload"] = {**data["workload"], "requests": 40}
    found, _ = answers(data, LISTS)
    assert not calls
    assert len(found["serial"]) == 40


def test_requests_that_no_replica_holds_are_refused_as_in_the_loops(calls):
    data = {**SMALL, "deployment": {"options": {"kv_blocks": 100, "max_context": 8192}}}
    wanted, loops = answers(data, LOOPS)
    found, lists = answers(data, LISTS)
    assert calls
    assert lists.fleet.refused == loops.fleet.refused > 20
    assert_same(found, wanted)


def test_progress_ends_at_one():
    shares = []
    data = {**SMALL, "deployment": {"replicas": 3}}
    with run_as(LISTS):
        serve(make_serving(data, "case", Path()), progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
