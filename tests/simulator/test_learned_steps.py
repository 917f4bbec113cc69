"""Learning from measured steps: factors that made the times are found, and no fit predicts its runs worse."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simulator.plan import Plan, Plans
from simulator.site import SITE_FORMAT, Site
from simulator.training import step_time
from simulator.uncertainty.learning import MeasuredStep, learn_site

PLANS = [
    Plan(tensor=tensor, pipeline=pipeline, data=64 // tensor // pipeline, micro_batch=1)
    for tensor, pipeline in ((8, 2), (8, 1), (4, 4), (2, 8), (4, 2), (8, 4))
]


@pytest.fixture
def measured(make_setting):
    """A function that gives the steps of ``PLANS`` on a machine with some factors."""

    def run(cluster="dgx-a100-80gb", **factors):
        setting = make_setting(cluster=cluster)
        device, framework = setting.cluster.device.name, setting.framework.name
        truth = Site(
            site_format=SITE_FORMAT, source="truth", device=device, framework=framework, factors=factors
        )
        own = replace(setting, site=truth)
        times = [float(step_time(own, Plans.of(plan))[0]) for plan in PLANS]
        return [
            MeasuredStep(str(number), setting, plan, time)
            for number, (plan, time) in enumerate(zip(PLANS, times, strict=True))
        ]

    return run


@pytest.mark.parametrize(
    "factors",
    [
        # A slow host shows in launches, which bind sooner beside faster kernels.
        {"host": 6.0, "cluster": "dgx-h100"},
        {"host": 6.0, "memory": 1.5, "cluster": "dgx-h100"},
        {"node": 2.5},
        {"products": 0.5, "attention": 0.5, "memory": 0.5},
        {"products": 1.3, "network": 3.0},
    ],
)
def test_runs_are_predicted_better_with_what_they_taught(measured, factors):
    found = learn_site(measured(**factors))
    before, after = (np.abs(np.log1p(errors)).mean() for errors in (found.before, found.after))
    assert before > 0.03
    assert after < 0.6 * before
    assert (found.posterior <= found.prior + 1e-12).all()


def test_runs_as_predicted_leave_every_factor_at_one(measured):
    found = learn_site(measured())
    assert set(found.site.factors.values()) == {1.0}
    assert np.abs(found.after).max() < 1e-12
