"""Arrays that routers read are those that every replica would answer just then."""

from pathlib import Path

import numpy as np
import pytest

from simulator.serving.fleet.fleet import Fleet
from simulator.serving.fleet.readings import Readings
from simulator.serving.replica.base import StepLoop
from simulator.serving.replica.replica import Replica
from simulator.serving.routers.base import Targets
from simulator.serving.scenario import make_serving
from simulator.serving.state.owners import Owners
from simulator.serving.steps.shared_tables import SharedTables

TABLES = SharedTables()
ARRIVALS_OF_20 = {"kind": "poisson", "rate": 300.0}
NUMBERS = "load", "queue", "free_blocks", "kv_use", "pending", "used_tokens"


class Compared(Readings):
    """Readings that every look compares with the replicas themselves."""

    fewest = 0
    looks = 0

    def cached(self, request):
        """See `Targets.cached`."""
        Compared.looks += 1
        asked = Targets(self.members)
        for name in NUMBERS:
            np.testing.assert_array_equal(self.column(name), asked.column(name), name)
        np.testing.assert_array_equal(self.in_memory(request), asked.in_memory(request))
        np.testing.assert_array_equal(self.holders(request), asked.holders(request))
        for kept, answered in zip(self.seconds(request), asked.seconds(request), strict=True):
            np.testing.assert_array_equal(kept, answered)
        cached = super().cached(request)
        np.testing.assert_array_equal(cached, asked.cached(request))
        return cached


def scenario(**keys):
    deployment = {
        "replicas": 4,
        "router": "dynamo-kv",
        "options": {"kv_blocks": 400, "max_context": 4096},
        **keys.pop("deployment", {}),
    }
    workload = {
        "kind": "serving",
        "requests": 150,
        "arrivals": {"kind": "poisson", "rate": 60.0},
        "input": {"kind": "lognormal", "median": 700, "sigma": 0.6, "most": 2000},
        "output": {"kind": "lognormal", "median": 60, "sigma": 0.8, "most": 300},
        "prefix": {"tokens": 256, "groups": 30},
        **keys.pop("workload", {}),
    }
    return {
        "model": "llama3.1-8b", "cluster": "dgx-h100", "workload": workload, "deployment": deployment, **keys,
    }  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"workload": {"arrivals": {"kind": "closed", "concurrency": 50}}},
        {"deployment": {"failures": {"at": [{"time": 1, "replica": 2}], "restore": 0.5}}},
        {"deployment": {"drains": [{"time": 0.5, "replica": 0, "until": 1.5}]}},
        {"deployment": {"adapters": {"count": 40, "rank": 16, "memory": 0.5}}},
        {"deployment": {"tiers": [{"place": "host", "gigabytes": 1}, {"place": "remote", "gigabytes": 2}]}},
        {"model": "qwen3-30b-a3b", "deployment": {"data": 2, "expert": 2}},
        {"deployment": {"pipeline": 2}},
        {"deployment": {"pools": [{"role": "prefill", "replicas": 2}, {"role": "decode", "replicas": 2}]}},
        {"deployment": {"migrate": {"kind": "llumnix", "interval": 0.1}}},
    ],
    ids=lambda keys: str(keys) or "plain",
)
def test_arrays_are_what_the_replicas_answer(keys, monkeypatch):
    monkeypatch.setattr("simulator.serving.fleet.looking.Readings", Compared)
    Compared.looks = 0
    fleet = Fleet(make_serving(scenario(**keys), "test", Path(), TABLES))
    fleet.run()
    assert len(fleet.records) == 150
    assert Compared.looks >= 150


def test_catching_up_is_running_and_settling_to_the_bit(monkeypatch):
    keys = {"deployment": {"router": "freeness", "replicas": 20}, "workload": {"arrivals": ARRIVALS_OF_20}}
    setting = make_serving(scenario(**keys), "test", Path(), TABLES)
    runs = [Fleet(setting) for _ in range(2)]
    runs[0].run()
    settled = []
    monkeypatch.setattr(Replica, "catch_up", lambda *args: settled.append(StepLoop.catch_up(*args)))
    runs[1].run()
    assert len(settled) > 150
    for caught_up, after in zip(*(run.records.columns().values() for run in runs), strict=True):
        np.testing.assert_array_equal(caught_up, after)


def test_owners_follow_what_caches_hold():
    owners = Owners()
    bits = [owners.listed(units) for units in ([1, 2, 3], [1], [9])]
    assert [owners.numbers(mask).tolist() for _, mask in owners.leading((1, 2, 3))] == [[1], [0]]
    assert [count for count, _ in owners.leading((1, 2, 3))] == [1, 3]
    owners.leave(2, bits[0])
    assert owners.leading((1, 2, 3)) == [(1, bits[0] | bits[1])]
    owners.enter(2, bits[2])
    assert owners.leading((2,)) == [(1, bits[2])]
    assert owners.leading((7,)) == [] and owners.leading(()) == []
