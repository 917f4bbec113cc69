"""Every key of a cluster's links moves the step of a plan that crosses them."""

import pytest

from hwmodels.cluster import clusters
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training import predict
from simulator.workload import Training

PLAN = Plan(tensor=8, pipeline=16, data=24, zero=1, rank_order="tensor-context-pipeline-data")


def step(**changes):
    """Seconds of a step on 3,072 devices of Frontier whose links differ in some keys."""
    definition = clusters.get("frontier").resized(PLAN.devices).model_dump()
    for key, value in changes.items():
        part = definition["network"] if key in definition["network"] else definition["levels"][1]
        part[key.removeprefix("level_")] = value
    training = Training(seq_len=2048, global_batch=768)
    setting = Setting(
        models.get("gpt3-175b"), clusters.get(definition), training, frameworks.get("megatron-core")
    )
    return float(predict(setting, Plans.of(PLAN)).time[0])


@pytest.mark.parametrize(
    ("key", "value", "slower"),
    [
        ("latency_s", 5e-3, True),
        ("level_latency_s", 1e-4, True),
        ("level_bandwidth", 75e9, True),
        ("nic_gbps", 100.0, True),
        ("nics_per_node", 8, False),
        ("oversubscription", 8.0, True),
        ("nodes_per_leaf", 16, True),
    ],
)
def test_each_key_of_links_moves_a_step(key, value, slower):
    change = step(**{key: value}) / step() - 1
    assert change > 1e-4 if slower else change < -1e-4


def test_the_shape_moves_a_step_where_uplinks_are_full():
    """Rings between groups of a dragonfly load its global links twice, those of a fat tree once."""
    assert step(nodes_per_leaf=16, shape="fat-tree") < 0.9 * step(nodes_per_leaf=16)
