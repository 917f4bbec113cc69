"""Bands, chances to fit and the order of plans: limits, monotony, and agreement with each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training import predict
from simulator.uncertainty import (
    EVIDENCE,
    PARTS,
    band,
    calibration_band,
    chance_to_fit,
    default_headroom,
    distinguishable,
    even_footing,
    evidence_of,
    exposure,
    memory_band,
    model_errors,
    ratio_band,
)
from simulator.workload import Training

PLANS = Plans.of([Plan(tensor=8, pipeline=2, data=4, micro_batch=2)])
CAPACITY = 80e9
SETTINGS = [
    Setting(
        models.get(model),
        clusters.get("dgx-h100"),
        Training(seq_len=4096, global_batch=64),
        frameworks.get(release),
    )
    for model, release in (
        ("llama3.1-8b", "megatron-core"),
        ("mixtral-8x7b", "megatron-core"),
        ("llama3.1-8b", "torch-fsdp-eager"),
    )
]


def step_of(setting, *plans):
    return predict(setting, Plans.of(list(plans)))


def test_shares_of_parts_add_up_to_the_step(make_setting):
    setting = make_setting()
    exposed = exposure(step_of(setting, Plan(tensor=8, pipeline=2, data=4, micro_batch=2)))
    shares = [PARTS.index(name) for name in PARTS if name not in ("overlap", "whole")]
    assert exposed[0, shares].sum() == pytest.approx(1.0)
    assert np.all(exposed >= 0)


def test_collectives_across_nodes_are_a_part_of_their_own(make_setting):
    setting = make_setting()
    inside, across = exposure(step_of(setting, Plan(tensor=8, data=8), Plan(tensor=16, data=4)))
    node, network = PARTS.index("node"), PARTS.index("network")
    assert inside[node] > 0
    assert across[network] > inside[network]


def test_the_model_error_widens_the_band(make_setting):
    setting = make_setting()
    step = predict(setting, PLANS)
    assert band(setting, step)[0] > calibration_band(setting, step)[0] > 0


def test_an_estimated_device_has_a_wider_band(make_setting):
    measured, estimated = make_setting(), make_setting(cluster="frontier", devices=64)
    widths = [float(band(s, predict(s, PLANS))[0]) for s in (measured, estimated)]
    assert widths[0] < widths[1]


def test_errors_of_what_plans_share_cancel_in_their_ratio(make_setting):
    setting = make_setting()
    near = Plan(tensor=8, pipeline=2, data=4, micro_batch=2)
    far = Plan(data=64, zero=3, recompute="full")
    step = step_of(setting, near, near, far)
    widths = ratio_band(setting, step)
    residual = model_errors().parts.residual * model_errors().parts.ratio_scale
    assert widths[0] == 0.0
    assert widths[1] == pytest.approx(np.sqrt(2) * residual)
    assert widths[2] > widths[1]


def test_a_plan_far_behind_is_distinguishable_and_the_fastest_is_not(make_setting):
    setting = make_setting()
    step = step_of(setting, Plan(tensor=8, data=8), Plan(tensor=8, data=8), Plan(tensor=32, data=2))
    differs = distinguishable(setting, step)
    assert step.time[2] > 1.5 * step.time[0]
    assert differs.tolist() == [False, False, True]


def test_equal_plans_are_on_even_footing_and_slow_ones_are_not():
    assert even_footing(1.0, np.array([1.0, 1.5])).tolist() == [True, False]


@given(st.floats(1e9, 2e11), st.floats(1e9, 2e11))
def test_more_memory_never_fits_better(one, other):
    low, high = sorted((one, other))
    fits = [chance_to_fit(np.array(peak), CAPACITY, SETTINGS[0]) for peak in (low, high)]
    assert fits[0] >= fits[1]


@pytest.mark.parametrize("setting", SETTINGS, ids=("dense", "experts", "several trainers"))
def test_a_plan_at_the_default_headroom_fits_with_the_required_chance(setting):
    peak = np.array(CAPACITY * (1 - default_headroom(setting)))
    assert chance_to_fit(peak, CAPACITY, setting) == pytest.approx(model_errors().memory.required_chance)


@pytest.mark.parametrize("setting", SETTINGS, ids=("dense", "experts", "several trainers"))
def test_the_memory_band_holds_nine_of_ten(setting):
    low, high = memory_band(setting)
    assert chance_to_fit(np.array(1.0), high, setting) == pytest.approx(0.95, abs=1e-3)
    assert chance_to_fit(np.array(1.0), low, setting) == pytest.approx(0.05, abs=1e-3)


def test_experts_are_less_sure_and_releases_that_stand_for_several_trainers_apart():
    one, experts, several = SETTINGS
    assert several.framework.memory.shared and not one.framework.memory.shared
    assert default_headroom(experts) > default_headroom(one)
    widths = [np.divide(*memory_band(setting)[::-1]) for setting in (one, experts)]
    assert widths == sorted(widths)
    assert memory_band(several) not in (memory_band(one), memory_band(experts))


def test_a_band_knows_what_was_measured_near(make_setting):
    setting = make_setting(cluster="dgx-h100", framework="nemo")
    other = "h200-sxm"
    assert evidence_of(setting, {"nemo": ["h100-sxm"]}) == "framework and device"
    assert evidence_of(setting, {"maxtext": ["h100-sxm"]}) == "device"
    assert evidence_of(setting, {"nemo": [other]}) == "device"
    assert evidence_of(setting, {"maxtext": [other]}) == "family"
    assert evidence_of(setting, {"nemo": ["mi300x"]}) == "none"


def test_less_evidence_is_a_wider_band():
    errors = [model_errors().parts.scale[near] for near in EVIDENCE]
    assert errors == sorted(errors)
