"""Saves as transfers on the engine: the closed form where nothing is shared, longer where the network is."""

from pathlib import Path

import pytest

from hwmodels.cluster import clusters
from planner.training.prediction import simulate_plan
from simulator.runs.build import RunCase
from simulator.scenario import make_scenario


def cluster(nic_gbps=400.0, client_bytes_s=5e9):
    found = clusters.get("dgx-h100").model_dump(mode="json", exclude_none=True)
    rates = {"write_bytes_s": 1e12, "read_bytes_s": 1e12}
    clients = {"client_write_bytes_s": client_bytes_s, "client_read_bytes_s": client_bytes_s}
    network = found["network"] | {"nic_gbps": nic_gbps}
    return found | {"network": network, "file_system": rates | clients}


def case(gpus=8, mechanism="asynchronous", places=("host", "remote"), engine=True, on=None, **plan):
    data = {
        "model": "llama3-8b",
        "cluster": on or cluster(),
        "gpus": gpus,
        "workload": {"seq_len": 4096, "global_batch": 32},
        "framework": "torch-fsdp",
        "plan": {"recompute": "full", **plan},
        "run": {
            "days": 1,
            "faults": "llama3-2024",
            "recovery": {"detect": {"heartbeat": 60}},
            "checkpoints": {"mechanism": mechanism, "places": list(places), "every": "30 min"},
        },
    }
    made = make_scenario(data, "test", Path())
    prediction = simulate_plan(made.setting, made.plan).prediction
    return RunCase(prediction.setting, prediction.plans, prediction.step, made.run, engine)


@pytest.mark.parametrize("rate", [50e6, 5e9, 500e9])
def test_both_ways_agree_where_nothing_is_shared(rate):
    """One node: saves much longer than a step, about as long, and shorter."""
    alone = case(tensor=8, on=cluster(client_bytes_s=rate))
    closed = case(tensor=8, on=cluster(client_bytes_s=rate), engine=False)
    assert alone.engine_save.extra_s == pytest.approx(0, abs=1e-9)
    assert alone.engine_save.beside_s == pytest.approx(alone.engine_save.step_s)
    for place, seconds in closed.save.safe_s.items():
        assert alone.save.safe_s[place] == pytest.approx(seconds, rel=1e-6)
    assert alone.stall == pytest.approx(closed.stall)


def test_a_network_shared_with_gradients_lengthens_both():
    narrow = cluster(nic_gbps=25.0, client_bytes_s=25e9)
    both = case(gpus=32, on=narrow, zero=3)
    closed = case(gpus=32, on=narrow, zero=3, engine=False)
    found = both.engine_save
    assert found.beside_s > found.step_s * 1.02
    assert found.write_s["remote"] > float(closed.save.safe_s["remote"][0] - closed.stall[0]) * 1.02
    assert float(both.stall[0]) == pytest.approx(float(closed.stall[0]) + found.extra_s)
    # The network carries both one after the other at best: no byte is free.
    alone = float(closed.save.safe_s["remote"][0] - closed.stall[0])
    assert found.extra_s <= alone * 1.05


def test_a_slow_save_takes_its_share_over_many_steps():
    narrow = cluster(nic_gbps=25.0, client_bytes_s=2e9)
    both = case(gpus=32, on=narrow, zero=3)
    steps = both.engine_save.write_s["remote"] / both.engine_save.beside_s
    slower = both.engine_save.beside_s - both.engine_save.step_s
    assert both.engine_save.extra_s == pytest.approx(steps * slower)


def test_a_save_that_training_waits_for_has_nothing_beside_it():
    waited = case(gpus=32, mechanism="synchronous", places=("remote",), zero=3)
    assert waited.engine_save.extra_s == 0 and not waited.engine_save.write_s
