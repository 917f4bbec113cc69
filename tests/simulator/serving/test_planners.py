"""Planners of released control planes: WVA and Dynamo's load-based planner, by the metrics of replicas."""

from math import inf
from pathlib import Path

import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.scalers import make_scaler
from simulator.serving.scalers.base import PoolLoad, ReplicaLoad
from simulator.serving.scenario import make_serving
from simulator.serving.steps.shared_tables import SharedTables

TABLES = SharedTables()


def pool(*loads, role="mixed", starting=0, since=inf):
    return PoolLoad(role, tuple(ReplicaLoad(*load) for load in loads), starting, since)


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (pool((0.6, 0), (0.6, 0)), 2),  # 0.2 spare; the other alone would be beyond 0.8
        (pool((0.75, 0), (0.75, 0)), 3),  # 0.05 spare, below 0.1
        (pool((0.2, 3), (0.2, 3)), 3),  # two sequences spare, below 3
        (pool((0.75, 0), (0.75, 0), starting=1), 3),  # one is on its way
        (pool((0.2, 0), (0.2, 1)), 1),  # the other would be at 0.4
        (pool((0.2, 0)), 1),  # none below one
        (pool((0.9, 9)), 2),  # all saturated
        (pool((0.9, 0), (0.3, 0), (0.3, 0)), 2),  # saturated ones tell nothing
    ],
)
def test_wva_keeps_spare_capacity(seen, wanted):
    assert make_scaler("wva", {}).by_load(seen) == wanted


@pytest.mark.parametrize(
    ("seen", "wanted"),
    [
        (pool((0.95, 0), (0.95, 0)), 3),
        (pool((0.7, 0), (0.7, 0)), 2),
        (pool((0.7, 11), (0.7, 11)), 3),  # waiting sequences count at 2 %
        (pool((0.3, 0), (0.3, 0)), 1),
        (pool((0.3, 0), (0.3, 0), since=60.0), 2),  # within three adjustments of 30 s
        (pool((0.95, 0), starting=1), 2),
        (pool((0.0, 1), (0.0, 0), role="prefill"), 3),
        (pool((0.9, 0), (0.9, 0), role="prefill", since=1.0), 1),
        (pool((0.0, 0)), 1),
    ],
)
def test_dynamo_follows_kv_use_and_the_prompt_queue(seen, wanted):
    assert make_scaler("dynamo-load", {}).by_load(seen) == wanted


@pytest.mark.parametrize(
    ("options", "words"), [({"kv_down": 0.95}, "kv_down"), ({"least": 9}, "least"), ({"kv_up": 0}, "kv_up")]
)
def test_thresholds_that_cross_are_refused(options, words):
    with pytest.raises(InputError, match=words):
        make_scaler("dynamo-load", options)


@pytest.mark.parametrize("scaler", ["wva", "dynamo-load"])
def test_a_pool_grows_under_load_and_shrinks_after_it(scaler):
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "gpus": 8,
        "workload": {
            "kind": "serving",
            "requests": 1220,
            "arrivals": {"kind": "piecewise", "period": 20, "rates": [60, 1]},
            "input": 300,
            "output": 100,
        },
        "deployment": {
            "options": {"max_sequences": 64, "kv_blocks": 250},
            "router": "least-loaded",
            "scaler": scaler,
            "scaler_options": {"interval": 1, "start": 1},
        },
    }
    members = serve(make_serving(data, "test", Path(), TABLES)).fleet.members
    assert len(members) > 1
    assert any(member.drained_s is not None for member in members)
