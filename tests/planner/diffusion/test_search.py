"""Plans for images and videos: what fits where, and what a load needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import InfeasibleError
from hwmodels.cluster import clusters
from planner.diffusion.search import search_diffusion
from simulator.diffusion.scenario import load_of, make_diffusion


def search(model, rate, latency, gpus=8, **workload):
    data = {
        "model": model,
        "cluster": "dgx-h100",
        "workload": {"kind": "diffusion", **workload},
        "load": {"arrivals": {"kind": "poisson", "rate": rate}, "latency": latency, "requests": 400},
    }
    stated = load_of(data, "test")
    assert stated is not None
    load, _, seed = stated
    setting = make_diffusion(data, "test", Path())
    return search_diffusion(setting, clusters.get("dgx-h100").resized(gpus), load, seed, top=5)


@pytest.mark.slow
def test_the_first_plan_carries_the_load_on_fewest_devices():
    found = search("pixart-sigma-xl", 1.0, 10.0)
    assert found.plans[0].devices == min(plan.devices for plan in found.plans)
    assert all(plan.result.share_within(10.0) >= 0.9 for plan in found.plans)
    assert all(plan.request.setting.layout.offload == "none" for plan in found.plans)


@pytest.mark.slow
def test_weights_beyond_a_device_come_from_the_host():
    found = search("flux.2-dev", 0.005, 600.0)
    assert found.plans
    assert all(plan.request.setting.layout.offload == "layers" for plan in found.plans)


def test_a_load_beyond_the_cluster_names_the_devices_that_it_needs():
    with pytest.raises(InfeasibleError, match=r"1 a second need at least .* devices; dgx-h100 has 8"):
        search("wan2.1-14b", 1.0, 600.0, height=720, width=1280, frames=81)
