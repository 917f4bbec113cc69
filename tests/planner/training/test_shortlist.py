"""A short list holds different plans, the recommended one first, each with its reason."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from planner.training.constraints import Constraints
from planner.training.families import FAMILIES, LEAST_MEMORY, differences, layouts, mechanisms
from planner.training.headroom import headroom_share
from planner.training.search import search
from planner.training.shortlist import RECOMMENDED
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.uncertainty import default_headroom, model_errors
from simulator.workload import Training

SETTING = Setting(
    models.get("llama2-7b"),
    clusters.get("dgx-a100-80gb"),
    Training(seq_len=2048, global_batch=64),
    frameworks.get("megatron-core"),
)
MEMORY = SETTING.cluster.device.memory_bytes


@pytest.fixture(scope="module")
def question(ask):
    return ask(batch=64)


@pytest.fixture(scope="module")
def listed(question):
    return search(question, 64, top=8, alternatives=True)


@pytest.fixture(scope="module")
def raw(question):
    return search(question, 64, top=4000)


def test_the_first_is_the_simplest_on_even_footing(listed, raw):
    even = raw.step.time <= raw.step.time[0] * (1 + model_errors().difference.even)
    assert RECOMMENDED in listed.rows[0].families
    assert listed.step.time[0] <= raw.step.time[0] * (1 + model_errors().difference.even)
    assert mechanisms(listed.plans)[0] == mechanisms(raw.plans.take(even)).min()


def test_one_row_is_the_first_of_a_longer_list(question, listed):
    """Families, which a list of one row leaves out, decide the other rows only."""
    single = search(question, 64, top=1, alternatives=True)
    assert list(single.plans) == list(listed.plans)[:1]
    assert single.rows[0].also == listed.rows[0].also
    assert (single.scored, single.removed) == (listed.scored, listed.removed)


def test_no_two_rows_are_the_same_plan_and_each_says_why(listed):
    plans = list(listed.plans)
    assert len({repr(plan) for plan in plans}) == len(plans) == len(listed.rows)
    assert all(row.families for row in listed.rows)
    labels = [label for row in listed.rows for label in row.families if label != "another layout"]
    assert len(labels) == len(set(labels))


def test_each_family_is_shown_by_its_best_plan(listed, raw):
    for family in FAMILIES:
        rows = [index for index, row in enumerate(listed.rows) if family.name in row.families]
        for index in rows:
            assert family.holds(listed.plans)[index]
            have = raw.step.time[family.holds(raw.plans)]
            assert listed.step.time[index] == pytest.approx(have.min(), rel=1e-6)


def test_the_plan_of_least_memory_needs_least(listed, raw):
    rows = [index for index, row in enumerate(listed.rows) if LEAST_MEMORY in row.families]
    near = raw.step.time <= raw.step.time[0] * 1.1
    for index in rows:
        assert listed.memory.peak[index] <= raw.memory.peak[near][:1000].max()


def test_near_duplicates_are_not_rows_and_name_what_differs(listed):
    assert any(row.also for row in listed.rows)
    first = listed.plans.plan(0)
    assert differences(first, first) == ""
    assert differences(first, first.model_copy(update={"micro_batch": 99})) == "micro 99"


def test_plans_of_one_layout_share_a_number():
    plans = Plans.of(
        [
            Plan(tensor=2, data=4, micro_batch=1),
            Plan(tensor=2, data=4, micro_batch=2, zero=1),
            Plan(tensor=2, data=4, zero=3),
            Plan(tensor=4, data=2),
        ]
    )
    first, second, third, fourth = layouts(plans)
    assert first == second
    assert len({first, third, fourth}) == 3


def test_headroom_removes_what_fills_the_device(question):
    half = search(question, 64, top=1, headroom=0.5)
    assert half.memory.peak[0] <= question.cluster.device.memory_bytes * 0.5
    assert half.removed["memory"] > search(question, 64, top=1).removed["memory"]


def test_nothing_fits_names_the_headroom_as_a_remedy(question):
    short = search(question, 8, Constraints.of({"tensor": 1, "zero": 0}), headroom=0.97).shortfall
    assert short is not None
    assert any(remedy.change == "no headroom" for remedy in short.remedies)


@pytest.mark.parametrize(
    ("asked", "share"),
    [(0.1, 0.1), ("10%", 0.1), ("8GiB", 8 * 2**30 / MEMORY), (" 4 GB ", 4e9 / MEMORY), (0, 0.0)],
)
def test_headroom_is_a_share_or_a_size(asked, share):
    assert headroom_share(asked, SETTING) == pytest.approx(share)


def test_headroom_follows_from_the_memory_models_error():
    assert headroom_share(None, SETTING) == default_headroom(SETTING)
    assert 0 < default_headroom(SETTING) < 0.5


@pytest.mark.parametrize("asked", ["much", "100%", "90GB", "-1", "1e3", 1.5])
def test_headroom_that_cannot_be_is_refused(asked):
    with pytest.raises(InputError, match="headroom"):
        headroom_share(asked, SETTING)


def test_mechanisms_count_what_a_plan_needs():
    simple, complex_ = (
        Plan(data=8),
        Plan(tensor=2, pipeline=2, virtual_pipeline=4, context=2, schedule="interleaved", zero=3),
    )
    counts = mechanisms(Plans.of([simple, complex_]))
    assert counts[0] == 0
    assert np.diff(counts)[0] > 5
