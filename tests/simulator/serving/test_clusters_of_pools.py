"""Pools on clusters of their own: prices, devices, links between them, and errors."""

from pathlib import Path

import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.state import Route


def setting(pools, **more):
    data = {
        "title": "pools",
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 200,
            "arrivals": {"kind": "poisson", "rate": 4},
            "input": 1000,
            "output": 200,
        },
        "deployment": {"engine": "vllm-0.19", "router": "least-loaded", "pools": pools},
    }
    return make_serving(data | more, "test", Path())


PREFILL, DECODE = {"role": "prefill"}, {"role": "decode"}


def test_naming_the_scenarios_cluster_changes_nothing():
    plain = serve(setting([PREFILL, DECODE])).metrics
    named = serve(setting([PREFILL, DECODE | {"cluster": "dgx-h100"}])).metrics
    assert plain.to_dict() == named.to_dict()


def test_a_decode_pool_on_slower_devices_slows_outputs_alone():
    both = serve(setting([PREFILL, DECODE]))
    mixed = serve(setting([PREFILL, DECODE | {"cluster": "dgx-a100-80gb"}]))
    same, slow = both.to_dict(), mixed.to_dict()
    assert slow["tpot_s"]["mean"] > 1.2 * same["tpot_s"]["mean"]
    assert [pool["device"] for pool in slow["pools"]] == ["h100-sxm", "a100-sxm-80gb"]
    h100, a100 = (clusters.get(name).device.price_per_hour_usd for name in ("dgx-h100", "dgx-a100-80gb"))
    rate = slow["dollars_per_million"] * 200 * 200 / 1e6 / slow["makespan_s"] * 3600
    assert rate == pytest.approx(h100 + a100, rel=1e-6)
    assert mixed.setting.cluster.devices == 1
    assert [count for _, count in mixed.setting.occupied] == [1, 1]


def test_the_route_between_clusters_is_the_narrower_side():
    fast, slow = clusters.get("dgx-h100").resized(16), clusters.get("dgx-a100-80gb").resized(16)
    route = Route.across(fast, 8, fast, 8)
    assert route.bandwidth == pytest.approx(fast.rates.nics)
    assert route.latency_s == fast.network.latency
    assert Route.across(fast, 8, slow, 8).bandwidth == pytest.approx(slow.rates.nics)
    assert Route.across(fast, 2, slow, 8).bandwidth == pytest.approx(fast.rates.nics / 4)


@pytest.mark.slow
def test_power_caps_belong_to_a_pool():
    capped = serve(setting([PREFILL, DECODE | {"power_cap_w": 300}])).to_dict()
    free = serve(setting([PREFILL, DECODE])).to_dict()
    assert capped["joules"] < free["joules"]
    assert capped["ttft_s"]["p50"] == pytest.approx(free["ttft_s"]["p50"], rel=0.05)


def test_a_pools_cluster_must_exist_and_be_large_enough():
    with pytest.raises(InputError, match=r"pools.1.cluster"):
        setting([PREFILL, DECODE | {"cluster": "dgx-h1000"}])
    small = {"name": "one", "device": "a100-sxm-80gb", "nodes": 1}
    with pytest.raises(InputError):
        setting([PREFILL, DECODE | {"cluster": small, "tensor": 8, "replicas": 2}])
