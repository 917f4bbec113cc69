"""Slow devices in a scenario: what they cost, and what is refused."""

from pathlib import Path

import pytest

from core.errors import InputError
from planner.training.prediction import simulate_plan
from planner.training.search import search
from simulator.scenario import make_scenario

HEALTHY = {
    "model": "llama3-8b",
    "cluster": "dgx-h100",
    "gpus": 64,
    "workload": {"seq_len": 8192, "global_batch": 128},
    "plan": {"tensor": 4, "pipeline": 4, "sequence_parallel": True, "zero": 1},
}


def period(*stragglers):
    asked = make_scenario({**HEALTHY, "stragglers": list(stragglers)}, "test", Path())
    timeline = simulate_plan(asked.setting, asked.plan, engine=True).timeline
    return timeline.period, timeline.ranks


def test_a_slow_device_holds_up_the_step_by_no_more_than_its_slowdown():
    healthy, _ = period()
    slow, ranks = period({"stage": 3, "slowdown": 1.2})
    slower, _ = period({"stage": 3, "slowdown": 1.5})
    assert ranks == 8  # the healthy replicas, and the slow one
    assert healthy < slow < slower
    assert slow < 1.2 * healthy
    # The last stage is the slowest: nearly all of its slow-down shows.
    assert slow > 1.15 * healthy


def test_thin_links_hold_up_the_reduction_of_all_replicas():
    healthy, _ = period()
    thin, _ = period({"stage": 0, "bandwidth": 0.25})
    thinner, _ = period({"stage": 0, "bandwidth": 0.1})
    assert healthy < thin < thinner


def test_how_many_replicas_are_slow_does_not_matter():
    one, some = ({"stage": 2, "slowdown": 1.5, "replicas": count} for count in (1, 3))
    assert period(one)[0] == pytest.approx(period(some)[0])
    everyone, ranks = period({"stage": 2, "slowdown": 1.5, "replicas": 4})
    assert everyone == pytest.approx(period(one)[0])
    assert ranks == 4


@pytest.mark.parametrize(
    ("straggler", "problem"),
    [
        ({"stage": 4, "slowdown": 1.2}, "stragglers.0.stage: the plan has stages 0 to 3, found 4"),
        ({"slowdown": 1.2, "replicas": 5}, "5 slow replicas, the plan has 4"),
        ({"stage": 1}, "changes nothing"),
        ({"slowdown": 0.5}, "slowdown"),
    ],
)
def test_stragglers_without_a_place_or_an_effect_are_refused(straggler, problem):
    with pytest.raises(InputError, match=problem):
        period(straggler)


def test_a_search_refuses_stragglers_instead_of_ignoring_them():
    asked = make_scenario({**HEALTHY, "stragglers": [{"slowdown": 1.2}]}, "test", Path())
    with pytest.raises(InputError, match="healthy devices"):
        search(asked.setting, 64)
