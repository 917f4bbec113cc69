"""Ranking, objectives, and that nothing is lost on the way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.errors import InputError, UnknownNameError
from planner.training import candidates
from planner.training import search as module
from planner.training.constraints import Constraints
from planner.training.search import search
from planner.training.space import Space
from simulator.plan import Plans
from simulator.training import predict

FEW = Constraints.parse(limit=["virtual_pipeline=3", "micro_batch=4"])


@pytest.mark.parametrize("model", [{}, {"experts": True}])
def test_returns_the_fastest_of_all_plans(ask, model, survivors):
    setting = ask(**model)
    found = search(setting, 16, FEW, top=5)
    everything = survivors(Space.of(setting, 16, FEW))
    times = predict(found.setting, Plans.of(everything)).time
    assert found.scored == len(everything)
    np.testing.assert_allclose(found.step.time, np.sort(times)[:5], rtol=1e-6)
    assert found.plans.plan(0) == everything[int(np.argmin(times.astype(np.float32)))]


def test_a_ranking_that_was_offered_no_plan_shows_none(ask):
    """Where no plan promises little enough for ``--proven``, blocks without plans are offered."""
    setting, none = ask(), Plans.of([])
    space = Space.of(setting, 16, FEW)
    ranking = module._Ranking(space, "time", 5, True, None, False)
    ranking.offer(none, np.zeros(0))
    plans, rows = ranking.shown(space, 5, None)
    assert len(plans) == 0 and rows == ()


def test_all_candidates_are_scored_or_removed(ask):
    found = search(ask(), 16, FEW)
    assert found.scored + sum(found.removed.values()) == found.candidates
    assert found.removed["memory"] > 0


def test_is_deterministic_and_does_not_depend_on_chunks(ask, monkeypatch):
    first = search(ask(), 16, FEW, top=20)
    monkeypatch.setattr(candidates, "CHUNK", 1000)
    again = search(ask(), 16, FEW, top=20)
    assert list(again.plans) == list(first.plans)
    np.testing.assert_allclose(again.step.time, first.step.time, rtol=1e-12)
    assert list(search(ask(), 16, FEW, top=7).plans) == list(first.plans)[:7]


def test_equal_plans_rank_simplest_first(ask):
    found = search(
        ask(), 16, Constraints.parse(["tensor=8", "pipeline=1", "context=1", "micro_batch=1"]), top=100
    )
    times = found.step.time.astype(np.float32)
    order = [(plan.zero, plan.shard_group) for plan in found.plans if plan.recompute == "none"]
    same = [(a, b) for a, b, gap in zip(order, order[1:], np.diff(times), strict=False) if gap == 0]
    assert all(a < b for a, b in same)


@pytest.mark.parametrize(
    ("objective", "figure"),
    [("time", "step_time_s"), ("cost", "usd_per_million_tokens"), ("energy", "kwh_per_million_tokens")],
)
def test_ranks_by_the_objective(ask, objective, figure):
    found = search(ask(), 16, FEW, objective, top=50)
    values = getattr(found.metrics, figure)
    assert np.all(np.diff(values) >= -1e-6 * values[:-1])
    assert found.runner_up_gap == pytest.approx(values[1] / values[0] - 1)


def test_the_cheapest_is_the_fastest_and_the_thriftiest_uses_least_energy(ask):
    best = {name: search(ask(), 16, FEW, name, top=1) for name in ("time", "cost", "energy")}
    assert list(best["cost"].plans) == list(best["time"].plans)
    energy = {name: float(found.metrics.kwh_per_million_tokens[0]) for name, found in best.items()}
    assert energy["energy"] <= energy["time"]
    assert best["time"].step.time[0] <= best["energy"].step.time[0]


def test_more_network_is_never_slower(ask, survivors):
    setting = ask()
    slow, fast = (
        replace(setting, cluster=setting.cluster.with_network(nic_gbps_per_node=rate)) for rate in (100, 1600)
    )
    plans = Plans.of(survivors(Space.of(setting, 32, FEW)))
    before = predict(Space.of(slow, 32).setting, plans).time
    after = predict(Space.of(fast, 32).setting, plans).time
    assert np.all(after <= before * (1 + 1e-12))
    assert search(fast, 32, FEW, top=1).step.time[0] < search(slow, 32, FEW, top=1).step.time[0]


def test_a_constraint_cannot_make_the_best_plan_faster(ask):
    free = search(ask(), 16, FEW, top=1)
    for fix in (["tensor=2"], ["recompute=full"], ["schedule=gpipe"]):
        held = search(ask(), 16, Constraints.parse(fix, ["virtual_pipeline=3", "micro_batch=4"]), top=1)
        assert held.step.time[0] >= free.step.time[0] * (1 - 1e-6)


def test_progress_ends_at_one(ask):
    shares = []
    search(ask(), 16, FEW, progress=shares.append)
    assert shares[-1] == 1.0
    assert shares == sorted(shares)


def test_one_device_has_one_kind_of_layout(ask):
    found = search(ask(layers=2, hidden=1024), 1, FEW)
    assert {plan.devices for plan in found.plans} == {1}
    assert {(plan.zero, plan.schedule) for plan in found.plans} == {(0, "1f1b")}


@pytest.mark.parametrize(
    ("constraints", "said"),
    [
        (
            Constraints.parse(["tensor=7"]),
            "tensor=7 has a valid shape: tensor must divide the attention heads",
        ),
        (Constraints.parse(["micro_batch=5"]), "data x micro_batch must divide the global batch"),
        (Constraints.parse(["pipeline=5", "tensor=1"]), "must divide the devices"),
        (Constraints.parse(["expert=2"]), "expert must divide the experts"),
    ],
)
def test_shapes_that_cannot_be_are_the_users_mistake(ask, constraints, said):
    with pytest.raises(InputError, match=said):
        search(ask(), 16, constraints)


def test_refuses_what_it_cannot_do(ask):
    with pytest.raises(UnknownNameError, match="did you mean 'time'"):
        search(ask(), 16, objective="tim")
    with pytest.raises(InputError, match="top must be 1 or more"):
        search(ask(), 16, top=0)
    with pytest.raises(InputError, match="asked for 10000000"):
        search(ask(), 10_000_000)
