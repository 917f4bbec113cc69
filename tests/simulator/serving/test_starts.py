"""Starts in stages: sources of weights, and the scaler and failures that use them."""

from pathlib import Path

import pytest

from core.errors import InputError
from hwmodels.cluster import clusters
from simulator.serving.fleet.outages import restore_seconds
from simulator.serving.question.start import StagedStart
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.starts import Loaded, make_source, stages, starts

CLUSTER = clusters.get("dgx-a100-80gb")
REPLICA = Loaded(CLUSTER, 4, 20e9)


def load(source: str, replica: Loaded = REPLICA, running: bool = True, **options) -> float:
    start = StagedStart.model_validate({"from": source, "options": options})
    return stages(start, make_source(start, "test"), replica, running)["load"]


def test_closer_weights_load_sooner():
    """DeepFlow's order: disk, host, a peer over NICs, a fork inside the node."""
    seconds = [load(source) for source in ("disk", "host", "peer", "fork")]
    assert seconds == sorted(seconds, reverse=True)


@pytest.mark.parametrize("source", starts)
def test_load_grows_with_bytes(source):
    light, heavy = (load(source, Loaded(CLUSTER, 4, size)) for size in (1e9, 2e9))
    assert 0 < light < heavy < 2.001 * light


def test_devices_of_a_root_share_its_link():
    one, pair = (load("host", Loaded(CLUSTER, devices, 20e9)) for devices in (1, 2))
    assert pair == pytest.approx(2 * one)


@pytest.mark.parametrize("source", ["peer", "fork"])
def test_a_copy_needs_a_replica_that_runs(source):
    assert load(source, running=False) == load("disk")


def test_a_sleeping_engine_starts_no_process():
    start = StagedStart.model_validate({"from": "sleep-1", "engine": 1000.0})
    assert list(stages(start, make_source(start, "test"), REPLICA, True)) == ["load"]


def setting(**deployment):
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-a100-80gb",
        "gpus": 8,
        "workload": {
            "kind": "serving",
            "requests": 120,
            "arrivals": {"kind": "piecewise", "period": 60, "rates": [2, 1e-6, 1e-6, 1e-6]},
            "input": 200,
            "output": 20,
        },
        "deployment": deployment,
    }
    return make_serving(data, "test", Path())


ZERO = {"scaler": "reactive", "scaler_options": {"interval": 5, "target": 16, "least": 0}}


def test_an_idle_pool_goes_to_zero_and_its_next_user_waits_for_a_start():
    result = serve(setting(**ZERO, start={"from": "disk", "engine": 20.0}))
    report = result.to_dict()
    started = report["starts"]["mixed"]
    assert started
    assert len(result.records) == 120
    waited = max(result.records.columns()["first_s"] - result.records.columns()["arrival_s"])
    assert 20.0 < waited < 20.0 + 5.0 + started[0]["load"] + 1.0
    always = serve(setting(start={"from": "disk"})).to_dict()
    assert report["dollars_per_million"] < always["dollars_per_million"]


def test_a_source_where_nothing_starts_changes_nothing():
    plain, staged = serve(setting()), serve(setting(start={"from": "peer"}))
    assert plain.metrics == staged.metrics


def test_failures_use_the_stages():
    found = setting(failures={"mtbf": 1e6}, start={"from": "host", "engine": 7.0})
    pool, failures = found.pools[0], found.deployment.failures
    assert failures is not None and pool.pool.start is not None
    assert restore_seconds(failures, pool.cluster, pool) == pytest.approx(
        7.0 + make_source(pool.pool.start, "").load_s(Loaded(pool.cluster, 1, pool.costs.weight_bytes))
    )


def test_both_pools_are_scaled():
    pools = [{"role": "prefill"}, {"role": "decode"}]
    scaler = {"scaler": "scheduled", "scaler_options": {"interval": 1, "period": 1, "replicas": [2]}}
    report = serve(setting(pools=pools, start={"from": "fork"}, **scaler)).to_dict()
    assert {name: len(found) for name, found in report["starts"].items()} == {"prefill": 1, "decode": 1}


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"from": "pear"}, "did you mean 'peer'"),
        ({"from": "disk", "options": {"rates": 1e9}}, "unknown key 'rates'"),
        ({"from": "disk", "options": {"rate": 3.0}}, "bytes per second"),
        ({"form": "disk"}, "did you mean 'from'"),
    ],
)
def test_bad_input(start, message):
    with pytest.raises(InputError, match=message):
        setting(start=start)
