"""Curves of deployments over their load."""

from __future__ import annotations

import numpy as np
import pytest

import meshwright as mw
from planner.serving.curves import load_curve

LOAD = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 2, "isl": 1000, "osl": 100}


@pytest.fixture(scope="module")
def search():
    return mw.deploy(**LOAD, ttft=1.0, tpot=0.05, rate=5.0, refine=0).search


def test_the_end_of_a_curve_is_the_goodput(search):
    for plan in search.plans:
        curve = load_curve(search.question, plan)
        assert curve is not None
        assert curve.rate[-1] == pytest.approx(plan.goodput)
        assert np.all(np.diff(curve.device) > 0)
        assert np.all(np.diff(curve.user) < 0)


def test_clients_in_flight_have_no_curve():
    search = mw.deploy(**LOAD, concurrency=8, refine=0).search
    assert load_curve(search.question, search.plans[0]) is None
