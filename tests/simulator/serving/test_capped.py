"""Clocks and power caps of a pool: limits, conservation of the cap, monotonicity, and energy."""

import itertools
from pathlib import Path

import numpy as np
import pytest

import meshwright as mw
from core.errors import InputError
from hwmodels.cluster import usual_cluster
from simulator.models import models
from simulator.serving.engines import engines
from simulator.serving.question.deployment import Pool
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steps.capped import iteration_table, step_arrays
from simulator.serving.steps.price import StepPrice
from simulator.serving.steps.step_times import RankBatch
from simulator.serving.steps.table import IterationTable

STEPS = [
    (((2048, 0),), 0, 0),
    ((), 1, 500),
    ((), 32, 32_000),
    ((), 128, 192_000),
    (((512, 256),), 64, 64_000),
]
CAPS = (700.0, 550.0, 450.0, 350.0, 280.0, 200.0, 120.0)


def made(device: str = "h100-sxm", **power) -> IterationTable:
    pool = Pool(tensor=4, **power)
    price = StepPrice(models.get("llama3.1-70b"), usual_cluster(device), pool, engines.get("vllm-0.15"))
    return iteration_table(price, 4096, 128, 8192)


def drawn(table: IterationTable, step, seconds: float) -> float:
    """Power of one device during a step, W."""
    prefills, decodes, kv_tokens = step
    tokens = decodes + sum(new for new, _ in prefills)
    return float(table.power.watts(tokens, decodes, kv_tokens, seconds, hosts=False)) / 4


@pytest.fixture(scope="module")
def free() -> IterationTable:
    return made()


@pytest.fixture(scope="module")
def capped() -> list[IterationTable]:
    return [made(power_cap_w=cap) for cap in CAPS]


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_a_cap_above_use_changes_nothing(free, step):
    for table in (made(power_cap_w=700), made(power_cap_w=690), made(clock_mhz=1830), made(clock_mhz=1980)):
        assert table.step(*step) == free.step(*step)
        assert drawn(table, step, table.step(*step)) == drawn(free, step, free.step(*step))


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_power_stays_at_or_below_the_cap(capped, step):
    clocks = [made(clock_mhz=clock) for clock in (1830, 1647, 1281, 915)]
    for table, cap in zip(capped, CAPS, strict=True):
        seconds = table.step(*step)
        assert drawn(table, step, seconds) <= cap
        for locked in clocks:
            # A locked clock that is faster than the capped step must draw more than the cap.
            if locked.step(*step) < seconds * (1 - 1e-9):
                assert drawn(locked, step, locked.step(*step)) > cap


@pytest.mark.parametrize("step", STEPS, ids=str)
def test_lower_caps_and_clocks_are_never_faster(capped, step):
    seconds = [table.step(*step) for table in capped]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(seconds))
    clocks = [made(clock_mhz=clock) for clock in (1800, 1400, 1000, 600)]
    times = [table.step(*step) for table in clocks]
    watts = [drawn(table, step, time) for table, time in zip(clocks, times, strict=True)]
    assert all(a <= b for a, b in itertools.pairwise(times))
    assert all(a >= b for a, b in itertools.pairwise(watts))


def test_prefill_slows_and_decode_hardly_does(free):
    slow = made(clock_mhz=1100)
    prefill, decode = STEPS[0], STEPS[2]
    assert slow.step(*prefill) > 1.3 * free.step(*prefill)
    assert slow.step(*decode) < 1.03 * free.step(*decode)


def test_locked_clocks_on_a100_agree_with_the_published_saving():
    """1.1 GHz for 1.41 saves up to 20 % of the power and costs up to 7 % (Patel et al., ASPLOS 2024)."""
    free, slow = made("a100-sxm-80gb"), made("a100-sxm-80gb", clock_mhz=1100)
    before, after = free.step(*STEPS[2]), slow.step(*STEPS[2])
    assert 1.0 <= after / before < 1.07
    assert 0.75 < drawn(slow, STEPS[2], after) / drawn(free, STEPS[2], before) < 0.9


def test_arrays_agree_with_plain_numbers(capped):
    for table in capped:
        decode = table.step((), 32, 32_000)
        assert float(table.cases.decode_seconds(32.0, 1000.0)) == pytest.approx(decode, rel=5e-3)
        mixed = float(table.cases.mixed_seconds(512.0, 256.0, 64.0, 1000.0))
        assert mixed == pytest.approx(table.step(((512, 256),), 64, 64_000), rel=1e-2)
        assert table.stretch(32, 32_000)[0] == pytest.approx(table.step((), 32, 32_000))
        batches = [RankBatch((), 32, 32_000)]
        assert table.lockstep(batches) >= IterationTable.lockstep(table, batches)
        parts = table.parts(((512, 256),), 64, 64_000)
        assert sum(parts.values()) == pytest.approx(table.step(((512, 256),), 64, 64_000), rel=2e-2)


def test_impossible_caps_and_clocks_are_refused():
    with pytest.raises(InputError, match="power_cap_w: must be at least 79 W on h100-sxm"):
        made(power_cap_w=60)
    with pytest.raises(InputError, match="clock_mhz: must be at least 549 MHz"):
        made(clock_mhz=500)


SCENARIO = {
    "title": "capped",
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "workload": {
        "kind": "serving",
        "requests": 200,
        "arrivals": {"kind": "poisson", "rate": 8},
        "input": 1000,
        "output": 200,
    },
    "deployment": {"engine": "vllm-0.19"},
}


def ran(data) -> dict:
    """The report of a run on the event engine."""
    return serve(make_serving(data, "test", Path())).to_dict()


@pytest.mark.slow
def test_the_event_engine_respects_clock_and_cap():
    def run(**power):
        return ran(SCENARIO | {"deployment": {"engine": "vllm-0.19", **power}})

    free, same, slow, capped = run(), run(power_cap_w=700), run(clock_mhz=1000), run(power_cap_w=300)
    for name in ("joules", "makespan_s", "tpot_s"):
        assert same[name] == free[name]
    assert slow["joules"] < free["joules"]
    assert slow["tpot_s"]["mean"] > free["tpot_s"]["mean"]
    assert capped["ttft_s"]["mean"] > free["ttft_s"]["mean"]
    hosts = 900.0
    assert capped["joules"] / capped["makespan_s"] < 300 + hosts


@pytest.mark.slow
def test_the_clock_of_least_energy_is_below_the_highest_where_latency_has_slack():
    def best(tpot: float, **more):
        asked = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 1, "isl": 1000, "osl": 200}
        found = mw.deploy(**asked, rate=6.0, ttft=2.0, tpot=tpot, objective="energy", refine=0, **more)
        return found.search.plans[0]

    slack, full = best(0.1), best(0.1, fix={"clock_mhz": 1830})
    chosen = slack.groups[0].shape.pool.clock_mhz or 1830.0
    assert chosen < 1830
    assert slack.joules_per_token < 0.9 * full.joules_per_token
    # A tight target, which nine in ten requests must keep, leaves the highest clocks only.
    tight = best(1.1 * full.tpot_s)
    assert (tight.groups[0].shape.pool.clock_mhz or 1830.0) > chosen


@pytest.mark.slow
def test_idle_time_counts_in_the_energy_of_a_plan():
    asked = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 1, "isl": 1000, "osl": 200}
    plan = mw.deploy(**asked, rate=0.5, ttft=2.0, tpot=0.1, objective="energy", refine=0).search.plans[0]
    made = {**SCENARIO, "seed": 3, "deployment": {"engine": "vllm-0.19", "clock_mhz": 915}}
    workload = {**SCENARIO["workload"], "requests": 600, "arrivals": {"kind": "poisson", "rate": 0.5}}
    run = ran({**made, "workload": workload})
    hosts = usual_cluster("h100-sxm").host_watts / 8
    measured = run["joules"] / run["makespan_s"] - hosts
    assert plan.groups[0].shape.pool.clock_mhz == 915
    assert plan.watts == pytest.approx(measured, rel=0.1)
    assert np.isfinite(plan.joules_per_token)


def test_joined_tables_under_a_cap_give_each_case_its_own_table():
    cluster, preset = usual_cluster("h100-sxm"), engines.get("vllm-0.15")
    tables = [
        iteration_table(
            StepPrice(models.get("llama3.1-8b"), cluster, Pool(power_cap_w=350.0, **degrees), preset),
            2048,
            64,
            4096,
        )
        for degrees in ({}, {"tensor": 2})
    ]
    joined = step_arrays(tables).cases(np.array([0, 1, 1]))
    sequences, keys = np.array([3.0, 64.0, 17.0]), np.array([700.0, 3000.0, 90.0])
    decodes, mixed = (
        joined.decode_seconds(sequences, keys),
        joined.mixed_seconds(2048.0, 0.0, sequences, keys),
    )
    watts = joined.watts(sequences + 2048.0, sequences, sequences * keys, mixed)
    for case, which in enumerate((0, 1, 1)):
        own = tables[which].cases
        assert decodes[case] == pytest.approx(
            float(own.decode_seconds(sequences[case], keys[case])), rel=1e-12
        )
        alone = own.mixed_seconds(2048.0, 0.0, sequences[case], keys[case])
        assert mixed[case] == pytest.approx(float(alone), rel=1e-12)
        assert watts[case] <= 350.0 * tables[which].price.pool.devices * (1 + 1e-9)
