"""Deployments for a constant number of requests in flight."""

from pathlib import Path

import pytest

import meshwright as mw
from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

ASKED = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 4, "isl": 1000, "osl": 200}
TARGETS = {"ttft": 0.5, "tpot": 0.03}


@pytest.fixture(scope="module")
def found():
    return mw.deploy(**ASKED, **TARGETS, concurrency=64, fix={"pipeline": 1}, refine=0)


def test_answers_keep_as_many_requests_in_flight_as_there_are_clients(found):
    assert found.search.question.objective == "cost"
    for plan in found.search.plans:
        # TTFT is that of the 90 % that must meet it; a request's mean is shorter.
        assert 0.9 * 64 < plan.goodput * plan.e2e_s < 1.15 * 64
        assert plan.ttft_s <= 0.5 and plan.tpot_s <= 0.03


def test_the_first_answer_is_what_its_clients_measure(found):
    metrics = serve(make_serving(found.scenario(), "test", Path())).metrics
    assert metrics.request_rate == pytest.approx(found.best.goodput, rel=0.05)
    assert metrics.latencies["tpot"].mean == pytest.approx(found.best.tpot_s, rel=0.05)


def test_no_more_replicas_than_clients():
    few = mw.deploy(**ASKED, **TARGETS, concurrency=2, objective="goodput", top=50, refine=0).search
    assert max(group.replicas for plan in few.plans for group in plan.groups) == 2
    assert all(len(plan.groups) == 1 for plan in few.plans)


def test_more_clients_than_the_targets_allow_are_refused_with_the_nearest():
    missed = mw.deploy(**ASKED, **TARGETS, concurrency=4000, refine=0).search
    assert not missed.plans and missed.nearest is not None and missed.nearest.ttft_s > 0.5


@pytest.mark.parametrize(
    ("more", "problem"),
    [({"rate": 2.0}, "excludes --rate"), ({"requests": "x.csv"}, "excludes --requests")],
)
def test_clients_exclude_other_loads(more, problem):
    with pytest.raises(InputError, match=problem):
        mw.deploy(**ASKED, **TARGETS, concurrency=8, **more)


@pytest.mark.parametrize("clients", [0, -1, 2**21])
def test_wrong_numbers_of_clients_are_refused(clients):
    with pytest.raises(InputError, match="must be from 1"):
        mw.deploy(**ASKED, **TARGETS, concurrency=clients)
