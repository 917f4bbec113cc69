"""Ranks that join and leave a replica with experts."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.ops.counts import expert_parameters
from simulator.serving.fleet.elastic import moved_experts, stop_seconds
from simulator.serving.replica.guards import guarding
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving
from simulator.serving.steps.shared_tables import SharedTables

TABLES = SharedTables()
QUICK = {"from": "fork", "engine": 1.0}


def data(resizes, rate=30, requests=400, **deployment):
    return {
        "model": "qwen1.5-moe-a2.7b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": requests,
            "arrivals": {"kind": "poisson", "rate": rate},
            "input": 200,
            "output": 200,
        },
        "deployment": {
            "data": 2,
            "expert": 2,
            "start": QUICK,
            "options": {"max_context": 4096, "max_sequences": 32},
            "resizes": resizes,
            **deployment,
        },
    }


def run(*resizes, **keys):
    with guarding():
        return serve(make_serving(data(list(resizes), **keys), "test", Path(), TABLES))


def bytes_of(result):
    columns = result.records.columns()
    return b"".join(columns[name].tobytes() for name in sorted(columns))


@pytest.mark.slow
def test_all_requests_end_and_later_ones_are_faster():
    result = run({"time": 3.0, "data": 4})
    assert len(result.records) == 400
    assert [member.pool.pool.data for member in result.fleet.members] == [2, 4]
    (start,) = result.to_dict()["starts"]["mixed"]
    assert start["at"] == 3.0
    columns = result.records.columns()
    gaps = (columns["last_s"] - columns["first_s"]) / 199
    plain = run().records.columns()
    late = columns["arrival_s"] > 8.0
    before = (plain["last_s"] - plain["arrival_s"])[late]
    assert (columns["last_s"] - columns["arrival_s"])[late].mean() < before.mean()
    assert np.median(gaps) > 0


@pytest.mark.slow
def test_a_replica_that_starts_anew_stops_for_longer():
    start = {"from": "fork", "engine": 4.0}
    live, anew = (
        run({"time": 3.0, "data": 4, "live": one, "pause": 0.2}, start=start).metrics for one in (True, False)
    )
    assert anew.latencies["e2e"].p99 > live.latencies["e2e"].p99


def test_ranks_that_leave_lose_their_kv_and_nothing_else():
    result = run({"time": 3.0, "data": 1, "pause": 0.1}, rate=10)
    assert len(result.records) == 400
    held = result.fleet.members
    assert held[1].waited == 0.0
    assert held[0].drained_s == 3.0


@pytest.mark.slow
def test_the_same_size_changes_no_byte():
    assert bytes_of(run({"time": 3.0, "data": 2})) == bytes_of(run())


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes():
    assert bytes_of(run({"time": 3.0, "data": 4})) == bytes_of(run({"time": 3.0, "data": 4}))


def test_each_expert_moves_once():
    setting = make_serving(data([{"time": 1, "data": 4}, {"time": 2, "data": 1}]), "test", Path(), TABLES)
    grown, shrunk = setting.resized
    model = grown.model
    whole = 2.0 * model.moe_layers * model.moe.experts * expert_parameters(model)
    # Two ranks join two: half of the experts move. Three of four leave: the last one receives the others'.
    assert 2 * moved_experts(model, grown, 2) == pytest.approx(whole / 2)
    assert moved_experts(model, shrunk, 4) == pytest.approx(0.75 * whole)
    asked = setting.deployment.resizes[0]
    assert stop_seconds(asked, grown, 2) > asked.pause + whole / 4 / 450e9


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"data": 16}, "14 devices join 2"),
        ({"data": 4, "replica": 1}, "allowed: below 1"),
    ],
)
def test_senseless_sizes_are_refused(keys, says):
    given = data([{"time": 1, **keys}])
    given["gpus"] = 8
    with pytest.raises(InputError, match=says):
        make_serving(given, "test", Path(), TABLES)


@pytest.mark.parametrize(
    ("deployment", "says"),
    [
        ({"expert": 1}, "experts spread"),
        ({"router": {"kind": "freeness", "migrate": {"kind": "drain"}}, "replicas": 2}, "beside migrate"),
        ({"scaler": "reactive"}, "scaler fixed"),
        ({"adapters": {"count": 2, "rank": 8}}, "beside adapters"),
    ],
)
def test_senseless_combinations_are_refused(deployment, says):
    with pytest.raises(InputError, match=says):
        make_serving(data([{"time": 1, "data": 4}], **deployment), "test", Path(), TABLES)
