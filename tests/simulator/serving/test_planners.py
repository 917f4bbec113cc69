"""Planners of released control planes: WVA and Dynamo's load-based planner, by the metrics of replicas."""

from math import inf
from pathlib import Path

import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.scalers import make_scaler
from simulator.serving.scalers.base import EndedRequests, PoolLoad, ReplicaLoad
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


def scaled(deployment):
    """Members of a run under a load that falls from 60 to one request a second."""
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
            "scaler_options": {"interval": 1, "start": 1},
            **deployment,
        },
    }
    return serve(make_serving(data, "test", Path(), TABLES)).fleet.members


@pytest.mark.parametrize(
    "deployment",
    [
        {"scaler": "wva"},
        {"scaler": "dynamo-load"},
        {
            "pools": [
                {"role": "prefill"},
                {
                    "role": "decode",
                    "scaler": "dynamo-sla",
                    "scaler_options": {"interval": 1, "start": 1, "itl": 0.002},
                },
            ],
            "scaler_options": {},
        },
    ],
    ids=str,
)
def test_a_pool_grows_under_load_and_shrinks_after_it(deployment):
    members = scaled(deployment)
    assert len(members) > 1 + len(deployment.get("pools", ())) // 2
    assert any(member.drained_s is not None for member in members)


def served(role, size=2, rate=10.0, ttft=0.2, tpot=0.02):
    """Requests of 1,000 prompt and 100 output tokens at a replica whose steps are linear in their tokens."""

    def step_s(chunks, decodes, kv_tokens):
        return 0.1e-3 * sum(tokens for tokens, _ in chunks) + 0.01 * (decodes > 0) + 1e-3 * decodes

    return EndedRequests(role, size, rate, 1000.0, 100.0, ttft, tpot, 64, step_s)


@pytest.mark.parametrize(
    ("options", "seen", "wanted"),
    [
        ({}, served("prefill"), 1),  # 10 x 0.1 s
        ({}, served("prefill", rate=21.0), 3),
        ({}, served("prefill", rate=21.0, ttft=0.05), 2),  # prompts take half: cached
        ({"corrects": False}, served("prefill", rate=21.0, ttft=0.05), 3),
        # 40 decodes take 50 ms, 800 tokens/s.
        ({"corrects": False}, served("decode"), 2),
        # 10 beside each other take 20 ms in the profile too.
        ({}, served("decode"), 2),
        # 20 take 40 ms, 30 in the profile: a target of 37.5 ms, 27 decodes, 730 tokens/s.
        ({}, served("decode", tpot=0.04), 2),
        ({"itl": 0.012}, served("decode"), 6),  # 2 decodes: 167 tokens/s
        ({"itl": 0.001}, served("decode"), 8),  # never: one at a time, 11 workers; most
        ({"least": 2}, served("prefill"), 2),
        ({}, served("decode", rate=0.0), 2),
    ],
)
def test_sla_planner_counts_tokens_at_its_profile(options, seen, wanted):
    assert make_scaler("dynamo-sla", options).by_requests(seen) == wanted


def test_sla_planner_needs_room_and_phases():
    with pytest.raises(InputError, match="room for a second replica"):
        make_scaler("dynamo-sla", {"most": 1})
    with pytest.raises(InputError, match="pools of role prefill or decode; found one of role mixed"):
        scaled({"scaler": "dynamo-sla"})
