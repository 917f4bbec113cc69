"""Failures, restores and drains: every request ends or is counted; replicas return when they should."""

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.cluster import clusters
from simulator.faults import Exposed
from simulator.serving.fleet.outages import restore_seconds
from simulator.serving.question.failures import Failures
from simulator.serving.question.places import read_rate
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

DEPLOYMENTS = {
    "mixed": {"replicas": 2, "router": "least-loaded"},
    "pipeline": {"replicas": 2, "pipeline": 2},
    "pools": {"pools": [{"role": "prefill"}, {"role": "decode", "replicas": 2}]},
    "few blocks": {"replicas": 2, "options": {"kv_blocks": 300}},
}
WORKLOADS = {
    "open": {"arrivals": {"kind": "poisson", "rate": 20}},
    "closed": {"arrivals": {"kind": "closed", "concurrency": 8}},
    "conversations": {
        "arrivals": {"kind": "poisson", "rate": 5},
        "program": {"kind": "conversation", "turns": 3, "think": 0.5},
    },
}


def run(deployment, workload=None, requests=60, seed=1):
    """A small model on one GPU a replica."""
    deployment = {**deployment, "options": {"max_context": 16384, **deployment.get("options", {})}}
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "seed": seed,
        "workload": {
            "kind": "serving",
            "requests": requests,
            "input": {"kind": "uniform", "low": 10, "high": 1200},
            "output": {"kind": "uniform", "low": 2, "high": 300},
            **(workload or WORKLOADS["open"]),
        },
        "deployment": deployment,
    }
    return serve(make_serving(data, "test", Path()))


@pytest.mark.slow
@given(
    deployment=st.sampled_from(sorted(DEPLOYMENTS)),
    workload=st.sampled_from(sorted(WORKLOADS)),
    times=st.lists(st.tuples(st.floats(0, 12), st.integers(0, 3)), min_size=1, max_size=12),
    restore=st.sampled_from([0.0, 0.3, 3.0]),
    retries=st.sampled_from([0, 1, 4]),
    seed=st.integers(0, 100),
)
@settings(max_examples=15, deadline=None)
def test_every_request_ends_or_is_given_up(deployment, workload, times, restore, retries, seed):
    at = [{"time": time, "replica": replica} for time, replica in times]
    failures = {"at": at, "restore": restore, "retries": retries, "retry_after": 0.2}
    result = run({**DEPLOYMENTS[deployment], "failures": failures}, WORKLOADS[workload], seed=seed)
    fleet, columns = result.fleet, result.records.columns()
    assert len(result.records) + fleet.refused + fleet.failed == 60
    assert len(set(columns["serial"].tolist())) == len(result.records)
    assert (columns["retries"] <= retries).all()
    assert fleet.retries >= columns["retries"].sum()
    for member in fleet.members:
        assert member.replica.load == 0
        assert all(batcher.kv.free == batcher.kv.total for batcher in member.replica.batchers)
    assert (columns["first_s"] <= columns["last_s"]).all()
    assert (columns["arrival_s"] <= columns["first_s"]).all()


def test_a_replica_is_back_when_its_weights_are_loaded():
    failures = Failures(start=10.0)
    result = run({"replicas": 1, "failures": {"at": [{"time": 1, "replica": 0}], "start": 10.0}})
    pool, cluster = result.setting.pools[0], result.setting.cluster
    seconds = restore_seconds(failures, cluster, pool)
    # The other replicas of the node read nothing meanwhile.
    drives = cluster.full_node.ssds
    rate = drives.count * drives.read_bytes_s
    assert seconds == pytest.approx(10 + pool.pool.devices * pool.costs.weight_bytes / rate)
    columns = result.records.columns()
    away = (columns["scheduled_s"] > 1) & (columns["scheduled_s"] < 1 + seconds)
    assert not away.any()
    assert (columns["retries"] > 0).any()


def test_nodes_without_drives_load_weights_over_the_network():
    cluster = clusters.get("perlmutter")
    assert read_rate(cluster, 4, "nvme") == read_rate(cluster, 4, "remote")


def test_random_failures_are_those_of_a_fault_process():
    process = Failures(mtbf=7200.0).process
    draws = [np.random.default_rng(3) for _ in range(2)]
    gaps = [process.gap(draws[0], Exposed(1, 8)) for _ in range(5)]
    assert gaps == [float(draws[1].exponential(7200 / 8)) for _ in range(5)]


def test_weights_in_host_memory_return_sooner():
    setting = run({"replicas": 1}).setting
    host, nvme = (
        restore_seconds(Failures(weights=place), setting.cluster, setting.pools[0])
        for place in ("host", "nvme")
    )
    assert 30 < host < nvme


def test_a_drained_replica_ends_what_it_has_and_takes_nothing_new():
    result = run({"replicas": 2, "drains": [{"time": 1.0, "replica": 0, "until": 2.0}]})
    columns = result.records.columns()
    assert len(result.records) == 60 and result.fleet.retries == 0
    first = columns["arrival_s"][columns["replica"] == 0]
    assert (first < 1).any() and (first >= 2).any() and not ((first > 1) & (first < 2)).any()


def test_failures_cost_time():
    at = [{"time": time, "replica": 0} for time in (0.5, 1.5, 2.5)]
    calm, failing = run({"replicas": 2}), run({"replicas": 2, "failures": {"at": at, "restore": 0.5}})
    means = [result.metrics.latencies["e2e"].mean for result in (calm, failing)]
    assert means[0] < means[1]
    assert failing.to_dict()["failures"] == 3


def test_random_failures_come_at_their_rate():
    """An hour at one failure a minute and replica: 120 on two replicas, within four standard deviations."""
    workload = {"arrivals": {"kind": "poisson", "rate": 0.1}}
    result = run({"replicas": 2, "failures": {"mtbf": 60, "restore": 0.1}}, workload, requests=360)
    hours = result.metrics.makespan_s / 3600
    assert result.to_dict()["failures"] == pytest.approx(120 * hours, abs=44)
    assert len(result.records) + result.fleet.failed == 360


def test_where_no_replica_returns_the_rest_is_given_up():
    result = run({"replicas": 1, "drains": [{"time": 1.0, "replica": 0}]})
    assert result.fleet.failed == 60 - len(result.records) > 0


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_a_dropped_result_frees_its_iteration_tables_without_the_collector(workload):
    gc.disable()
    try:
        at = [{"time": 1.0, "replica": 0}]
        result = run({**DEPLOYMENTS["pools"], "failures": {"at": at, "restore": 0.3}}, WORKLOADS[workload])
        freed = [weakref.ref(pool.costs.steps) for pool in result.setting.pools]
        del result
        assert [table() for table in freed] == [None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("scaler", ["fixed", "reactive", "scheduled"])
@pytest.mark.parametrize("outages", [{"at": [{"time": 5, "replica": 0}]}, {"mtbf": 60}])
@pytest.mark.parametrize("drains", [[], [{"time": 3, "replica": 0, "until": 30}]])
def test_every_scaler_survives_failures_and_drains(scaler, outages, drains):
    options = {"period": 10, "replicas": [1, 2]} if scaler == "scheduled" else {}
    deployment = {"engine": "vllm-0.19", "scaler": scaler, "drains": drains}
    deployment |= {"failures": {**outages, "start": 30}, **({"scaler_options": options} if options else {})}
    workload = {"kind": "serving", "requests": 100, "arrivals": {"kind": "poisson", "rate": 5}}
    workload |= {"input": 200, "output": 50}
    data = {"model": "llama3.1-8b", "cluster": "dgx-h100", "workload": workload, "deployment": deployment}
    run = serve(make_serving(data, "test", Path()))
    assert run.metrics.requests + run.fleet.failed == 100
    assert 0 <= run.metrics.busy <= 1


def test_replicas_that_work_for_failed_requests_are_busy_at_most_always():
    workload = {"kind": "serving", "requests": 3, "arrivals": {"kind": "burst"}, "input": 200, "output": 400}
    deployment = {"engine": "vllm-0.19", "options": {"max_sequences": 1}}
    data = {"model": "llama3.1-8b", "cluster": "dgx-h100", "workload": workload, "deployment": deployment}
    whole = serve(make_serving(data, "test", Path()))
    ends = whole.records.columns()["last_s"]
    cut = float(ends[1] + 0.9 * (ends[2] - ends[1]))
    failures = {"at": [{"time": cut, "replica": 0}], "retries": 0}
    run = serve(make_serving({**data, "deployment": {**deployment, "failures": failures}}, "test", Path()))
    assert run.fleet.failed == 1
    assert 0.9 < run.metrics.busy <= 1
