"""Mixes of GPU types end to end: buckets, offers, errors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import meshwright as mw
from core.errors import InfeasibleError, InputError, UnknownNameError
from planner.serving.mix.allocation import Allocation
from planner.serving.mix.buckets import buckets
from planner.serving.mix.run import run_mix, scenario_of_mix
from planner.serving.offers import Offer
from planner.serving.replica_cases import DECODE, PREFILL
from planner.serving.request_sample import Sample
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

SCENARIO = {
    "model": "llama2-7b",
    "deployment": {"engine": "vllm-0.19"},
    "workload": {
        "kind": "serving",
        "arrivals": {"kind": "poisson", "rate": 4.0},
        "input": {"kind": "lognormal", "median": 200, "sigma": 1.0, "most": 1500},
        "output": {"kind": "lognormal", "median": 150, "sigma": 0.7, "most": 800},
        "slo": {"tpot": 0.12},
    },
}


def test_buckets_keep_rate_and_tokens():
    random = np.random.default_rng(0)
    drawn = Sample(
        random.integers(1, 4000, 500).astype(float), random.integers(1, 900, 500).astype(float), 7.0
    )
    found = buckets(drawn, 7.0)
    assert sum(bucket.rate for bucket in found) == pytest.approx(7.0)
    prompt = sum(bucket.rate * bucket.prompt for bucket in found) / 7.0
    assert prompt == pytest.approx(drawn.prompts.mean())
    output = sum(bucket.rate * bucket.output for bucket in found) / 7.0
    assert output == pytest.approx(drawn.outputs.mean())


@pytest.mark.slow
def test_a_mix_costs_no_more_than_a_type_alone():
    pytest.importorskip("pulp")
    found = mw.mix(["l4", "a10g", "h100-sxm"], SCENARIO, fix={"tensor": 1})
    alone = [one.usd_per_hour for one in found.alone.values() if isinstance(one, Allocation)]
    assert found.best.usd_per_hour <= min(alone) + 1e-9
    assert found.saving >= 0
    carried = found.best.share[~found.costs.ways.decodes].sum(axis=0)
    np.testing.assert_allclose(carried, 1.0)


@pytest.mark.parametrize(
    ("types", "error", "words"),
    [
        (["l4=2=3"], InputError, "must be NAME, NAME=COUNT, NAME@PRICE or"),
        (["l4", "l4=3"], InputError, "is given twice"),
        (["l5"], UnknownNameError, "l5"),
        (["l4=0"], InputError, "at least one device"),
    ],
)
def test_wrong_types_are_named(types, error, words):
    with pytest.raises(error, match=words):
        mw.mix(types, SCENARIO)


@pytest.mark.slow
def test_targets_that_no_type_meets():
    hard = {**SCENARIO, "workload": {**SCENARIO["workload"], "slo": {"tpot": 0.001}}}
    with pytest.raises(InfeasibleError, match="no GPU type on offer serves the workload"):
        mw.mix(["l4"], hard)


def test_prices_and_counts_are_read():
    offer = Offer.parse("h100-sxm=8@2.5")
    assert (offer.name, offer.available, offer.usd_per_hour) == ("h100-sxm", 8, 2.5)
    assert Offer.parse("dgx-h100").available is None


@pytest.fixture(scope="module")
def mixed():
    pytest.importorskip("pulp")
    workload = {**SCENARIO["workload"], "arrivals": {"kind": "poisson", "rate": 6.0}}
    return mw.mix(["l4", "a10g", "h100-sxm"], {**SCENARIO, "workload": workload}, fix={"tensor": 1})


@pytest.mark.slow
def test_a_mix_keeps_its_promise_on_the_event_engine(mixed):
    run = run_mix(mixed)
    assert run.promised >= 0.999 * run.demand
    assert run.met >= 0.9
    # Bucket by bucket the program is cautious; a large surplus would mean that it rents too much.
    assert -0.05 < run.difference < 0.6


def test_a_mix_sends_requests_as_the_program_says(mixed):
    data = scenario_of_mix(mixed)
    assert len(data["deployment"]["pools"]) > 1
    result = serve(make_serving(data, "mix", Path()))
    columns = result.records.columns()
    _, first, share = mixed.pools[0]
    sent = float((columns["replica"] < first).mean())
    weights = np.array([bucket.rate for bucket in mixed.buckets]) / mixed.rate
    wanted = float(share @ weights)
    assert sent == pytest.approx(wanted, abs=0.05)
    assert [pool["device"] for pool in result.to_dict()["pools"]] == [
        option.offer.name for option, count in zip(mixed.options, mixed.best.replicas, strict=True) if count
    ]


PAIRED = {"model": "llama3.1-70b", "isl": 2048, "osl": 256, "ttft": 1.0, "tpot": 0.03}
TWO = ["h100-sxm=4", "a100-sxm-80gb=8"]


@pytest.fixture(scope="module")
def paired():
    pytest.importorskip("pulp")
    return mw.mix(TWO, rate=5.5, **PAIRED)


@pytest.mark.slow
def test_prompts_and_outputs_on_two_types_carry_what_neither_carries_together(paired):
    assert [(option.role, option.offer.name) for option, _, _ in paired.pools] == [
        (PREFILL, "h100-sxm"),
        (DECODE, "a100-sxm-80gb"),
    ]
    with pytest.raises(InfeasibleError, match=r"short of .* needed\); they carry about 4\.\d+ of 5\.5"):
        mw.mix(TWO, rate=5.5, split=False, **PAIRED)


def test_a_pair_of_types_runs_on_the_event_engine(paired):
    data = scenario_of_mix(paired)
    data["workload"] |= {"requests": 300, "arrivals": {"kind": "poisson", "rate": 4.5}}
    result = serve(make_serving(data, "mix", Path())).to_dict()
    assert [(pool["role"], pool["device"]) for pool in result["pools"]] == [
        ("prefill", "h100-sxm"),
        ("decode", "a100-sxm-80gb"),
    ]
    assert result["slo_share"] >= 0.9
