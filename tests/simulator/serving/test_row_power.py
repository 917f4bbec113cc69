"""Power policies of a row: thresholds, delays, priorities, brakes, and energy under changing clocks."""

from pathlib import Path

import pytest

from core.errors import InputError, UnknownNameError
from simulator.serving.power_policies import make_power_policy, power_policies
from simulator.serving.result import ServingResult, serve
from simulator.serving.scenario import make_serving


def ran(replicas: int = 4, policy: str | None = "polca", **power) -> ServingResult:
    deployment = {"engine": "vllm-0.19", "replicas": replicas, "router": "by-priority"}
    if policy is not None:
        deployment |= {"power_policy": policy, "power_policy_options": {"servers": 4, **power}}
    data = {
        "title": "row",
        "model": "llama3.1-8b",
        "cluster": "dgx-a100-80gb",
        "gpus": replicas,
        "workload": {
            "kind": "serving",
            "requests": 150 * replicas,
            "arrivals": {"kind": "poisson", "rate": 2.0 * replicas},
            "input": 1500,
            "output": 200,
            "priorities": [0.5, 0.5],
        },
        "deployment": deployment,
    }
    return serve(make_serving(data, "test", Path()))


def figures(result: ServingResult):
    row = result.row
    assert row is not None
    return row.figures()


def test_polca_steps_through_its_levels_and_back():
    policy = make_power_policy("polca", {})
    levels, level = [], 0
    for used in (0.7, 0.81, 0.81, 0.9, 0.9, 0.9, 0.86, 0.83, 0.83, 0.83, 0.76, 0.74):
        level = policy.level(level, used)
        levels.append(level)
    assert levels == [0, 1, 1, 2, 3, 3, 3, 2, 1, 1, 1, 0]
    low, high = zip(*policy.clocks, strict=True)
    assert low == (None, 1275, 1110, 1110) and high == (None, None, None, 1305)


@pytest.mark.slow
def test_a_budget_that_nothing_reaches_changes_nothing():
    free, watched = ran(policy=None), ran(server_w=1e5)
    assert free.records.columns()["last_s"].tolist() == watched.records.columns()["last_s"].tolist()
    assert watched.metrics.joules == pytest.approx(free.metrics.joules, rel=1e-9)
    assert figures(watched).brakes == 0 and figures(watched).capped == 0.0


@pytest.mark.slow
def test_caps_lower_the_power_and_spare_high_priority():
    free = ran(policy="brake-only", server_w=1e5)
    peak = figures(free).peak_w / 4
    capped = ran(server_w=peak / 0.84, actuation=4.0)
    assert figures(capped).mean_w < figures(free).mean_w
    assert figures(capped).capped > 0.5
    before, after = free.metrics.by_priority, capped.metrics.by_priority
    slower = [after[level]["e2e_s"]["mean"] / before[level]["e2e_s"]["mean"] for level in (0, 1)]
    assert slower[0] < slower[1]
    assert slower[1] > 1.005


@pytest.mark.slow
def test_more_servers_than_the_budget_carries_brake():
    provisioned = figures(ran(policy="brake-only", server_w=1e5)).peak_w / 4
    fitting = ran(policy="brake-only", server_w=1.01 * provisioned)
    assert figures(fitting).brakes == 0
    crowded = ran(8, "brake-only", server_w=1.01 * provisioned)
    assert figures(crowded).brakes > 0 and figures(crowded).braked > 0
    assert figures(crowded).added == 1.0
    slow, fast = (run.to_dict()["e2e_s"]["mean"] for run in (crowded, fitting))
    assert slow > fast
    assert len(crowded.records) == 1200


def test_replicas_of_each_priority_serve_their_requests():
    result = ran()
    columns = result.records.columns()
    assert set(columns["replica"][columns["priority"] == 0]) == {0, 1}
    assert set(columns["replica"][columns["priority"] == 1]) == {2, 3}


def test_wrong_policies_are_refused():
    with pytest.raises(UnknownNameError, match="polka"):
        ran(policy="polka")
    with pytest.raises(InputError, match="clock_mhz: must be at least 423 MHz"):
        ran(low_mhz=300.0)
    assert set(power_policies) == {"polca", "brake-only"}


@pytest.mark.parametrize(
    ("model", "degrees"),
    [
        ("llama3.1-8b", {"pipeline": 2}),
        ("qwen3-30b-a3b", {"data": 2, "expert": 2}),
    ],
)
def test_pipelines_and_attention_ranks_are_capped_too(model, degrees):
    def run(policy, **power):
        data = {
            "model": model,
            "cluster": "dgx-a100-80gb",
            "workload": {
                "kind": "serving",
                "requests": 200,
                "arrivals": {"kind": "closed", "concurrency": 32},
                "input": {"kind": "uniform", "low": 300, "high": 900},
                "output": {"kind": "uniform", "low": 100, "high": 300},
            },
            "deployment": {
                **degrees,
                "replicas": 2,
                "power_policy": policy,
                "power_policy_options": {"servers": 2, "telemetry": 0.5, **power},
            },
        }
        return serve(make_serving(data, "test", Path()))

    free = run("brake-only", server_w=1e6)
    peak = figures(free).peak_w / 2
    capped = run("polca", server_w=peak / 0.9, actuation=1.0)
    assert figures(capped).capped > 0.3
    assert figures(capped).mean_w < figures(free).mean_w
    assert capped.to_dict()["e2e_s"]["mean"] > 0.99 * free.to_dict()["e2e_s"]["mean"]
