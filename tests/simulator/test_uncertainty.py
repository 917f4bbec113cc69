"""Bands, chances to fit and the order of plans: limits, monotony, and agreement with each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.plan import Plan, Plans
from simulator.training import predict
from simulator.uncertainty import (
    EVIDENCE,
    band,
    calibration_band,
    chance_to_fit,
    default_headroom,
    distinguishable,
    even_footing,
    evidence_of,
    memory_band,
    model_errors,
    part_errors,
)

PLANS = Plans.of([Plan(tensor=8, pipeline=2, data=4, micro_batch=2)])
CAPACITY = 80e9


def test_kernels_and_links_stay_within_the_worst_of_them(make_setting):
    setting = make_setting()
    width = calibration_band(setting, predict(setting, PLANS))
    assert 0 < width[0] < max(part_errors(setting).values())


def test_the_model_error_widens_the_band(make_setting):
    setting = make_setting()
    step = predict(setting, PLANS)
    assert band(setting, step)[0] > calibration_band(setting, step)[0]
    assert band(setting, step)[0] >= model_errors().step["dense"]


def test_an_estimated_device_has_a_wider_band(make_setting):
    measured, estimated = make_setting(), make_setting(cluster="frontier", devices=64)
    widths = [float(band(s, predict(s, PLANS))[0]) for s in (measured, estimated)]
    assert widths[0] < widths[1]


@given(st.floats(0.1, 100.0), st.floats(1.0, 1.5), st.floats(1.0, 1.5))
def test_a_plan_further_from_the_first_is_never_less_distinguishable(first, near, far):
    near, far = sorted((near, far))
    assert distinguishable(first, first * far) >= distinguishable(first, first * near)


def test_equal_plans_are_on_even_footing_and_slow_ones_are_not():
    assert even_footing(1.0, np.array([1.0, 1.5])).tolist() == [True, False]
    assert not distinguishable(1.0, 1.0)
    assert distinguishable(1.0, 1.5)


@given(st.floats(1e9, 2e11), st.floats(1e9, 2e11))
def test_more_memory_never_fits_better(one, other):
    low, high = sorted((one, other))
    assert chance_to_fit(np.array(low), CAPACITY) >= chance_to_fit(np.array(high), CAPACITY)


def test_a_plan_at_the_default_headroom_fits_with_the_required_chance():
    peak = np.array(CAPACITY * (1 - default_headroom()))
    assert chance_to_fit(peak, CAPACITY) == pytest.approx(model_errors().memory.required_chance)


def test_the_memory_band_holds_nine_of_ten():
    low, high = memory_band()
    assert chance_to_fit(np.array(1.0), high) == pytest.approx(0.95, abs=1e-3)
    assert chance_to_fit(np.array(1.0), low) == pytest.approx(0.05, abs=1e-3)


def test_a_band_knows_what_was_measured_near(make_setting):
    setting = make_setting(cluster="dgx-h100", framework="nemo")
    other = "h200-sxm"
    assert evidence_of(setting, {"nemo": ["h100-sxm"]}) == "framework and device"
    assert evidence_of(setting, {"maxtext": ["h100-sxm"]}) == "device"
    assert evidence_of(setting, {"nemo": [other]}) == "device"
    assert evidence_of(setting, {"maxtext": [other]}) == "family"
    assert evidence_of(setting, {"nemo": ["mi300x"]}) == "none"


def test_less_evidence_is_a_wider_band():
    errors = [model_errors().evidence[near] for near in EVIDENCE]
    assert errors == sorted(errors)
