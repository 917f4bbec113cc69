"""Replicas by latency targets, and prompts that are padded."""

from pathlib import Path

import numpy as np
import pytest

from core.errors import InputError
from simulator.serving.result import serve
from simulator.serving.scalers.by_targets import ByTargets
from simulator.serving.scenario import make_serving
from simulator.serving.steps.shared_tables import SharedTables

TABLES = SharedTables()


def run(workload=(), **deployment):
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "gpus": 8,
        "workload": {
            "kind": "serving",
            "requests": 900,
            "arrivals": {"kind": "piecewise", "period": 10, "rates": [20, 60, 5]},
            "input": 300,
            "output": 100,
            "slo": {"ttft": 0.3, "tpot": 0.05},
            **dict(workload),
        },
        "deployment": {"options": {"max_sequences": 8}, "router": "least-loaded", **deployment},
    }
    return serve(make_serving(data, "test", Path(), TABLES))


SCALED = {"scaler": "by-targets", "scaler_options": {"interval": 1, "start": 1, "most": 8}}


@pytest.mark.slow
def test_replicas_follow_the_targets():
    fixed, scaled = run(), run(**SCALED)
    assert scaled.metrics.slo_share > fixed.metrics.slo_share + 0.1
    assert len(scaled.fleet.members) > 1
    assert any(member.drained_s is not None for member in scaled.fleet.members)


@pytest.mark.slow
def test_a_count_that_cannot_change_is_a_fixed_one():
    options = {"interval": 1, "least": 2, "most": 2}
    ours, theirs = run(replicas=2, scaler="by-targets", scaler_options=options), run(replicas=2)
    first, second = ours.records.columns(), theirs.records.columns()
    for name in ("first_s", "last_s"):
        np.testing.assert_allclose(first[name], second[name], rtol=1e-9)


@pytest.mark.parametrize(
    ("met", "running", "waiting", "expected"),
    [(0.5, 10, 3, 4), (1.0, 5, 0, 2), (1.0, 14, 0, 3), (1.0, 5, 1, 3), (0.96, 0, 0, 2)],
)
def test_one_more_or_one_less(met, running, waiting, expected):
    policy = ByTargets(goal=0.95, full=0.5, most=8)
    assert policy.within(3, running, waiting, 8, met) == expected


def test_targets_are_needed():
    with pytest.raises(InputError, match=r"workload\.slo"):
        run({"slo": {}}, **SCALED)


def static(lengths, pads):
    workload = {"input": lengths, "output": 2, "arrivals": {"kind": "burst"}, "requests": 64}
    options = {"max_context": 8192, "scheduler_options": {"batch": 16, "pads": pads}}
    return run(workload, engine="static", options=options).records.columns()["last_s"].max()


def test_padding_costs_what_the_longest_prompt_is_above_the_mean():
    lengths = {"kind": "empirical", "tokens": [500, 4000], "weights": [15, 1]}
    assert static(lengths, True) > 2 * static(lengths, False)
    assert static(700, True) == static(700, False)
