"""The search of deployments: rules, limits, agreement of rows with single steady states, and refinement."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import meshwright as mw
from core.errors import InfeasibleError, InputError
from hwmodels.cluster import clusters
from meshwright.questions.serving import serving_question
from meshwright.reports.serving_shortfall import falls_short, nearest_words, shortfall_words
from planner.serving.deployment import scenario_of
from planner.serving.engine_run import trial_run
from planner.serving.refine import bisect, longer, settled
from planner.serving.replica_cases import CLOSE, ROLES, ReplicaCases, largest_rate, ttft_quantile
from planner.serving.scored_deployments import scores
from planner.serving.search import search_serving
from planner.serving.shapes import choices, shapes
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

GIVEN = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 4,
    "isl": 1000,
    "osl": 200,
    "rate": 8.0,
    "ttft": 0.5,
    "tpot": 0.03,
    "share": None,
    "engine": "vllm",
    "objective": "goodput",
}
SMALL = {"tensor": "2", "pipeline": "1"}


def question(limit=SMALL, fix=None, **changed):
    return serving_question(None, GIVEN | changed, fix or {}, limit)


@pytest.fixture(scope="module")
def asked():
    return question()


@pytest.fixture(scope="module")
def found(asked):
    return search_serving(asked, top=20)


@pytest.fixture(scope="module")
def table(asked):
    return scores(asked, list(shapes(asked, {})))


def test_plans_of_equal_goodput_rank_by_the_time_of_a_request():
    given = {
        "model": "llama3.1-70b",
        "gpus": 16,
        "isl": 2048,
        "osl": 256,
        "rate": 12.0,
        "ttft": 1.0,
        "tpot": 0.05,
    }
    asked = question(limit={"tensor": "4", "pipeline": "2"}, **given)
    plans = search_serving(asked, top=20).plans
    pairs = [
        (before, after)
        for before, after in itertools.pairwise(plans)
        if math.isclose(before.goodput, after.goodput, rel_tol=1e-12)
        and (before.devices, len(before.groups)) == (after.devices, len(after.groups))
    ]
    assert pairs and all(before.e2e_s <= after.e2e_s for before, after in pairs)


def test_every_candidate_is_accounted_for(asked, found):
    removed = {name: count for name, count in found.removed.items() if name != "slo"}
    assert len(list(choices(asked))) == sum(removed.values()) + len(list(shapes(asked, {})))
    assert found.scored >= len(found.plans)
    assert found.candidates >= found.scored


@pytest.mark.parametrize("objective", ["cost", "energy", "latency"])
def test_every_ranked_plan_carries_the_rate(objective):
    """The mean TPOT of a pipeline may keep a target that too few of its requests keep."""
    limit, tight = {"tensor": 2, "pipeline": 2}, {"rate": 40.0, "tpot": 0.017}
    table = scores(asked := question(limit, objective=objective, **tight), list(shapes(asked, {})))
    mean_kept = (table.ttft <= 0.5) & (table.tpot <= 0.017)
    assert np.any(mean_kept & (table.goodput < 0.99 * 40.0))
    assert np.all(table.goodput[table.meets] >= (1.0 - 5.0 * CLOSE) * 40.0)


def test_plans_are_in_the_order_of_the_objective(found):
    goodput = [plan.goodput for plan in found.plans]
    assert goodput == sorted(goodput, reverse=True)
    assert all(plan.devices <= 4 for plan in found.plans)


def test_the_best_is_the_best_of_all_rows_by_exhaustion(found, table):
    assert found.plans[0].goodput == pytest.approx(table.goodput.max())


def test_a_row_is_its_replicas_on_the_steady_state(asked, table):
    for index in np.flatnonzero(table.second < 0):
        phase = table.mixed[table.first[index]]
        count = table.replicas[0, index]
        state = case_of(asked, phase, count).state(np.array([asked.rate / count]))
        if state.stable[0]:
            assert table.tpot[index] == pytest.approx(state.tpot_s[0])
            assert table.ttft[index] == pytest.approx(ttft_quantile(asked, state)[0])
            assert table.watts[index] == pytest.approx(state.watts[0] * count)


def test_the_largest_rate_meets_the_targets_and_a_higher_one_does_not(asked, table):
    for phase in itertools.chain(table.mixed, table.prefill, table.decode):
        if phase.rate[0] > 0:
            case = case_of(asked, phase, 1)
            rates = (phase.rate[0], phase.rate[0] * 1.01)
            assert [bool(case.meets(np.array([rate]))[0]) for rate in rates] == [True, False]


VARIED = {"kind": "lognormal", "median": 650, "sigma": 1.0, "most": 8000}


def scenario(prompts, slo):
    workload = {"kind": "serving", "requests": 200, "arrivals": {"kind": "poisson", "rate": 2.0}}
    workload |= {"input": prompts, "output": 100, "slo": slo}
    return {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 2, "workload": workload, "deployment": {}}


@pytest.mark.slow
def test_long_prompts_among_short_ones_count_for_the_share_that_meets_the_target():
    varied = mw.deploy(scenario(VARIED, {"ttft": 0.1, "tpot": 0.03}), top=1, refine=0).search
    mean = round(varied.question.prompt)
    equal = mw.deploy(scenario(mean, {"ttft": 0.1, "tpot": 0.03}), top=1, refine=0).search
    assert equal.question.long_prompt == equal.question.prompt_variation == 0.0
    prompts = varied.question.sample.prompts
    above = (1 + varied.question.long_prompt) * prompts.mean()
    assert np.mean(prompts <= above) == pytest.approx(0.9, abs=0.01)
    assert varied.plans[0].goodput < 0.97 * equal.plans[0].goodput


def test_no_rate_of_the_event_engine_meets_a_target_below_a_lone_requests_time():
    made = scenario(400, {"ttft": 1e-4}) | {"deployment": {"engine": "vllm-0.19"}}
    assert bisect(make_serving(made, "test", Path()), 1.0, None) == 0.0


def case_of(asked, phase, replicas):
    """The row of a phase's own limits."""
    every = ReplicaCases.of(asked, [phase.shape], [ROLES.index(phase.role)])
    own = (every.budget == phase.budget) & (every.sequences == phase.sequences)
    return every[np.flatnonzero(own)].shared_by(replicas)


def test_shapes_and_roles_searched_together_find_what_each_finds_alone(asked):
    kept = list(shapes(asked, {}))
    every = ReplicaCases.of(asked, kept, range(len(ROLES)))
    together = largest_rate(every)
    for index, shape in enumerate(kept):
        for role in range(len(ROLES)):
            own = (every.shape == index) & (every.role == role)
            alone = largest_rate(ReplicaCases.of(asked, [shape], [role]))
            assert together[own] == pytest.approx(alone, rel=1e-12)


def test_a_wider_target_never_carries_less(found):
    wide = search_serving(question(ttft=1.0, tpot=0.06), top=1)
    assert wide.plans[0].goodput >= found.plans[0].goodput


def test_cost_uses_the_fewest_devices_that_carry_the_rate():
    cheap = search_serving(question(objective="cost"), top=1).plans[0]
    assert cheap.goodput >= 8.0
    assert cheap.devices == min(plan.devices for plan in search_serving(question(objective="cost"), 50).plans)


def test_constraints_hold():
    held = search_serving(question(fix={"tensor": "2", "replicas": "1"}, limit={}), top=5)
    assert {group.shape.pool.tensor for plan in held.plans for group in plan.groups} == {2}
    assert {group.replicas for plan in held.plans for group in plan.groups} == {1}


def test_targets_that_nothing_meets_are_answered_with_the_nearest():
    short = search_serving(question(ttft=0.001), top=3)
    assert short.plans == []
    assert short.nearest is not None
    assert short.nearest.ttft_s > 0.001


def test_a_load_that_nothing_carries_is_answered_with_what_would():
    short = search_serving(question(rate=2000.0, objective="cost"), top=3)
    most = search_serving(question(), top=1).plans[0]
    assert short.plans == []
    assert short.nearest.goodput == pytest.approx(most.goodput)
    words = nearest_words(short)
    assert f"carries most, {most.goodput:.3g} requests/s on 4 GPUs" in words
    assert f"about {math.ceil(4 * 2000 / most.goodput)} would carry the load" in words
    assert " 1000000000 " not in words


def test_the_nearest_latency_is_named_where_no_load_is_carried():
    words = nearest_words(search_serving(question(ttft=0.001), top=1))
    assert "the best is " in words
    assert "(target 1.00 ms)" in words


def test_a_cost_question_on_a_device_without_a_price_is_refused():
    cluster = clusters.get("dgx-h100")
    free = cluster.model_copy(
        update={"device": cluster.device.model_copy(update={"price_per_hour_usd": 0.0})}
    )
    with pytest.raises(InputError, match="objective cost needs a price; h100-sxm has none"):
        replace(question(objective="cost"), cluster=free.resized(4))


def test_a_model_that_fits_nowhere_is_refused():
    with pytest.raises(InfeasibleError, match=r"GiB too much a device.*16 devices a replica would help"):
        search_serving(question(model="llama3.1-405b", cluster="dgx-h100", gpus=1), top=1)


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"objective": "speed"}, "speed"),
        ({"rate": None, "objective": "cost"}, "rate"),
        ({"engine": "vlm"}, "vlm"),
    ],
)
def test_wrong_questions_are_refused(changed, word):
    with pytest.raises(InputError, match=word):
        question(**changed)


def test_an_unknown_field_is_refused():
    with pytest.raises(InputError, match="field of a serving plan"):
        question(fix={"tensr": "2"})


@pytest.mark.slow
def test_the_event_engine_agrees_at_half_load_and_bounds_the_largest_rate():
    found = mw.deploy(**GIVEN, limit=SMALL, split=False, top=1, refine=1)
    run = found.refined[0]
    assert run.problem == ""
    # Near saturation a percent of step time is several percent of rate.
    assert run.goodput == pytest.approx(found.best.goodput, rel=0.35)
    half = found.best.goodput / 2
    at_half = mw.deploy(
        **{**GIVEN, "rate": half, "objective": "latency"}, limit=SMALL, split=False, top=1, refine=0
    )
    simulated = serve(make_serving(at_half.scenario(), "found", Path())).metrics.latencies
    assert simulated["tpot"].mean == pytest.approx(at_half.best.tpot_s, rel=0.1)
    assert simulated["e2e"].mean == pytest.approx(at_half.best.e2e_s, rel=0.1)


@pytest.mark.slow
def test_a_grid_search_over_the_event_engine_has_the_same_winner(asked, table, found):
    """Every count of every shape, mixed or in two pools, runs on the event engine: none carries more than the
    first by over 3 %."""
    first = found.plans[0]
    rate = bisect(run_of(asked, first), first.goodput, asked.rate) / 0.97
    plans = [table.plan(int(index)) for index in np.flatnonzero(table.goodput > 0)]
    assert [
        plan.describe() for plan in plans if trial_run(longer(run_of(asked, plan)), rate, asked.rate).holds
    ] == []


def run_of(asked, plan):
    slo = asked.workload.slo
    setting = make_serving(scenario_of(asked, plan), "plan", asked.folder)
    return settled(setting, plan.goodput * (slo.ttft + slo.tpot * asked.output))


def test_the_engines_own_limits_stay_where_no_others_carry_more(asked, table):
    kept = list(shapes(asked, {}))
    for phase in itertools.chain(table.mixed, table.prefill, table.decode):
        if phase.rate[0] <= 0:
            continue
        every = ReplicaCases.of(asked, [phase.shape], [ROLES.index(phase.role)]).shared_by(
            phase.shape.most_replicas
        )
        rates = largest_rate(every)
        own = int(np.lexsort((every.sequences, every.budget))[-1])
        chosen = np.flatnonzero((every.budget == phase.budget) & (every.sequences == phase.sequences))[0]
        assert rates[chosen] >= rates.max() * (1 - 5 * CLOSE)
        if rates[own] >= rates.max() * (1 - CLOSE):
            assert chosen == own
    assert kept


def test_a_rate_above_the_goodput_is_described_at_the_goodput():
    plan = search_serving(question(rate=2000.0), top=1).plans[0]
    assert plan.load == plan.goodput < 2000
    assert plan.ttft_s <= 0.5 * 1.01
    assert plan.tpot_s <= 0.03


def test_a_stated_rate_is_carried_at_least_cost_by_default():
    found = search_serving(question(objective=None), top=5)
    named = search_serving(question(objective="cost"), top=5)
    best = search_serving(question(), top=1).plans[0]
    assert (found.question.objective, found.question.unasked) == ("cost", True)
    assert found.plans[0].usd_per_million == pytest.approx(named.plans[0].usd_per_million)
    assert all(plan.meets and plan.goodput >= 8.0 * (1 - 5 * CLOSE) for plan in found.plans)
    assert found.most.describe() == best.describe()
    assert found.most.goodput == pytest.approx(best.goodput)
    assert named.most is None


def test_without_a_rate_goodput_counts():
    assert question(objective=None, rate=None).objective == "goodput"


def test_a_rate_that_nothing_carries_is_answered_with_what_carries_most():
    flags = {name: value for name, value in GIVEN.items() if name != "objective"}
    found = mw.deploy(**(flags | {"rate": 2000.0}), limit=SMALL, top=3, refine=0).search
    words = shortfall_words(found, found.plans[0])
    assert falls_short(found)
    assert found.plans[0].load == found.plans[0].goodput < 2000.0
    assert "at 2000 requests/s" in words
    assert f"{found.plans[0].goodput:.3g} requests/s" in words


@pytest.mark.slow
def test_attention_ranks_that_share_a_budget_have_tables_of_their_own():
    question = serving_question(
        None,
        {
            **dict.fromkeys(("rate", "share", "objective")),
            "model": "deepseek-v2-lite",
            "cluster": "dgx-h100",
            "gpus": 8,
            "isl": 1000,
            "osl": 100,
            "ttft": 2.0,
            "tpot": 0.05,
            "engine": "sglang",
        },
        {"tensor": 1},
        {},
    )
    found = search_serving(question, 10)
    assert {group.shape.pool.data for plan in found.plans for group in plan.groups} - {1}
