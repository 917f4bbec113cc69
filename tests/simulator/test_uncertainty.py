"""The band of a prediction: between nothing and its worst part, and blind to what plans share."""

from __future__ import annotations

import numpy as np

from simulator.plan import Plan, Plans
from simulator.training import predict
from simulator.uncertainty import band, part_errors, tells_apart

PLANS = Plans.of(
    [
        Plan(tensor=8, pipeline=2, data=4, micro_batch=2),
        Plan(tensor=8, pipeline=2, data=4, micro_batch=2),
        Plan(tensor=8, pipeline=2, data=4, micro_batch=2, recompute="full"),
    ]
)


def test_the_band_is_within_the_worst_part(make_setting):
    setting = make_setting()
    width = band(setting, predict(setting, PLANS))
    assert np.all(width > 0)
    assert np.all(width < max(part_errors(setting).values()))


def test_equal_plans_cannot_be_told_apart_and_recomputation_can(make_setting):
    setting = make_setting()
    step = predict(setting, PLANS)
    assert not tells_apart(setting, step, 0, 1)
    assert tells_apart(setting, step, 0, 2)


def test_an_estimated_device_has_a_wider_band(make_setting):
    measured, estimated = make_setting(), make_setting(cluster="frontier", devices=64)
    widths = [float(band(s, predict(s, PLANS))[0]) for s in (measured, estimated)]
    assert widths[0] < widths[1]
