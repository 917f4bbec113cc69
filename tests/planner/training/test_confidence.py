"""Chances to be the fastest and expected losses against closed forms."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest

from hwmodels.cluster import clusters
from planner.training.confidence import chances, worth_measuring
from planner.training.prediction import Prediction
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.uncertainty import band, model_errors
from simulator.workload import Training


def test_the_chance_of_two_plans_is_that_of_the_difference_of_two_normals():
    times, spread = np.array([1.0, 1.1]), 0.1
    best, _ = chances(times, spread**2 * np.eye(2))
    exact = NormalDist().cdf(np.log(1.1) / (np.sqrt(2) * spread))
    assert best[0] == pytest.approx(exact, abs=0.02)
    assert best.sum() == pytest.approx(1.0)


def test_an_error_that_plans_share_changes_no_order():
    best, loss = chances(np.array([1.0, 1.01]), np.full((2, 2), 0.3**2))
    assert best.tolist() == [1.0, 0.0]
    assert loss[1] == pytest.approx(0.01, rel=1e-6)


def test_a_certain_fastest_plan_loses_nothing():
    best, loss = chances(np.array([1.0, 2.0]), 1e-6 * np.eye(2))
    assert best[0] == 1.0
    assert loss.tolist() == pytest.approx([0.0, 1.0], abs=0.01)


def test_uncertain_plans_are_expected_to_lose_more_than_their_gap():
    training = Training(seq_len=2048, global_batch=64)
    cluster, framework = clusters.get("dgx-a100-80gb").resized(64), frameworks.get("megatron-core")
    setting = Setting(models.get("korthikanti-22b"), cluster, training, framework)
    plans = Plans.of([Plan(tensor=8, data=8), Plan(tensor=8, pipeline=2, data=4)])
    found = Prediction.of(setting, plans)
    known = found.confidence
    slow = int(np.argmax(found.step.time))
    gap = found.step.time[slow] / found.step.time.min() - 1
    assert known.expected_loss[slow] > gap
    assert known.chance_best.sum() == pytest.approx(1.0)
    assert known.ratio_half_width[1 - slow] == 0.0


def test_a_plan_that_measured_runs_do_not_bear_out_has_a_wider_band():
    """No run of Megatron-LM on A100 split sequences over ranks; tensors were."""
    training = Training(seq_len=2048, global_batch=64)
    cluster, framework = clusters.get("dgx-a100-80gb").resized(64), frameworks.get("megatron-lm-2022")
    setting = Setting(models.get("korthikanti-22b"), cluster, training, framework)
    plans = Plans.of([Plan(tensor=8, data=8), Plan(tensor=8, context=2, data=4)])
    found = Prediction.of(setting, plans)
    known = found.confidence
    assert [each.marked for each in known.evidence] == [False, True]
    plain = band(setting, found.step)
    assert known.half_width == pytest.approx(plain * [1.0, model_errors().unproven])
    assert model_errors().unproven > 1.0


def test_a_plan_that_cannot_win_is_not_worth_measuring():
    times, spread = np.array([1.0, 1.02, 3.0]), 0.1
    chosen, gains = worth_measuring(times, spread**2 * np.eye(3), 2)
    assert sorted(chosen) == [0, 1]
    assert gains[0] > 0


def test_certain_plans_gain_nothing_by_measurements():
    chosen, gains = worth_measuring(np.array([1.0, 1.5]), 1e-12 * np.eye(2), 2)
    assert len(chosen) == 2
    assert gains == pytest.approx([0.0, 0.0], abs=1e-5)


def test_an_uncertain_plan_is_worth_more_than_a_certain_one():
    times = np.array([1.0, 1.05, 1.05])
    chosen, _ = worth_measuring(times, np.diag([1e-8, 0.2**2, 1e-4]), 1)
    assert chosen == [1]
