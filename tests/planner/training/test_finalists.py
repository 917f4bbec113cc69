"""Plans whose schedule has no closed form: searched by bounds, ranked and shown by the engine's steps."""

import numpy as np
import pytest

from core.errors import InputError
from planner.training.constraints import Constraints, asked_schedules
from planner.training.finalists import bounded
from planner.training.prediction import simulate_plan
from planner.training.search import search
from simulator.schedules import schedules

OPEN = [name for name, schedule in schedules.items() if not schedule.has_closed_form]


def shown(ask, constraints, **options):
    return search(ask(layers=16, batch=64), 16, constraints, top=3, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPEN)
def test_a_fixed_schedule_is_searched_and_timed_by_the_engine(ask, name):
    found = shown(ask, Constraints.parse([f"schedule={name}", "pipeline=4", "tensor=2"]), alternatives=True)
    assert len(found.plans)
    for row, plan in enumerate(found.plans):
        assert plan.schedule == name
        timeline = simulate_plan(found.setting, plan, engine=True).timeline
        assert found.step.time[row] == timeline.period
        assert sum(part[row] for part in found.step.seconds.values()) == pytest.approx(timeline.period)
        assert min(part[row] for part in found.step.seconds.values()) >= 0


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["time", "energy"])
def test_all_schedules_are_no_worse_than_those_offered(ask, objective):
    fixed = Constraints.parse(["pipeline=4", "tensor=2", "virtual_pipeline=1"])
    every = Constraints(fixed.fixed, fixed.limits, schedules="all")
    offered = shown(ask, fixed, objective=objective)
    found = shown(ask, every, objective=objective)
    figure = {
        "time": lambda result: result.step.time[0],
        "energy": lambda result: result.metrics.kwh_per_million_tokens[0],
    }
    assert figure[objective](found) <= figure[objective](offered) * (1 + 1e-9)
    assert bounded(found.plans).any()
    assert (np.diff(found.step.time) >= -1e-9).all() or objective != "time"
    assert found.scored > offered.scored


def test_the_default_has_the_schedules_that_the_release_offers(ask):
    found = shown(ask, Constraints())
    assert set(found.space.schedule_names) <= {"gpipe", "1f1b", "interleaved", "breadth-first"}
    assert asked_schedules("all") == "all"
    with pytest.raises(InputError, match="did you mean 'all'"):
        asked_schedules("al")


def test_steps_that_only_a_long_engine_run_times_are_refused(ask):
    setting = ask(batch=1 << 21)
    fixed = Constraints.parse(["schedule=zb-h1", "pipeline=4", "tensor=2", "micro_batch=1"])
    with pytest.raises(InputError, match="event engine would run"):
        search(setting, 16, fixed)
