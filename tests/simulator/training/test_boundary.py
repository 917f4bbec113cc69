"""Boundary tensors between pipeline stages: every hop over the links that it really crosses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hwmodels.cluster import clusters
from hwmodels.topology import NETWORK
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.plan import Plan, Plans
from simulator.setting import Setting
from simulator.training.boundary import boundary_transfer, hop_transfer, level_shares
from simulator.training.step_graph.build import step_program
from simulator.workload import Training

NVLINK, INFINIBAND = 0, 1


@pytest.fixture(scope="module")
def setting():
    cluster = clusters.get("dgx-h100").resized(64)
    training = Training(seq_len=4096, global_batch=64)
    return Setting(models.get("llama3-70b"), cluster, training, frameworks.get("megatron-core"))


def shares(setting, **plan):
    return level_shares(setting.cluster, Plans.of(Plan(**plan)))[:, 0].tolist()


@settings(deadline=None)
@given(
    name=st.sampled_from(["dgx-h100", "frontier", "gb200-nvl72"]),
    stride=st.integers(1, 40),
    one=st.integers(0, 5),
    hop=st.integers(1, 3),
)
def test_a_hop_crosses_the_level_that_its_routes_meet_on(name, stride, one, hop):
    cluster = clusters.get(name)
    names = [*(level.name for level in cluster.levels), NETWORK]
    ranks = range(one * stride, (one + 1) * stride)
    met = [{link.level for link in cluster.topology.route(rank, rank + hop * stride)} for rank in ranks]
    outermost = max(names.index(level) for levels in met for level in levels if level in names)
    found = int(cluster.level_between(stride, one, one + hop))
    # A block that straddles a boundary counts as crossing it, even where each of its pairs stays inside.
    assert found >= outermost
    if all(level.devices % stride == 0 for level in cluster.levels):
        assert found == outermost


def test_blocks_of_half_a_node_cross_the_network_every_other_hop(setting):
    free = shares(setting, tensor=4, pipeline=16, sequence_parallel=True, overlap_pipeline=True)
    assert free == pytest.approx([8 / 15, 7 / 15])
    assert shares(setting, tensor=4, pipeline=16, sequence_parallel=True) == [0.5, 0.5]


def test_two_stages_in_one_node_never_reach_the_network(setting):
    assert shares(setting, tensor=4, pipeline=2, sequence_parallel=True) == [1.0, 0.0]


def test_blocks_that_fill_nodes_always_cross_the_network(setting):
    plans = Plans.of(Plan(tensor=8, pipeline=4, data=2, sequence_parallel=True))
    assert shares(setting, tensor=8, pipeline=4, data=2, sequence_parallel=True) == [0.0, 1.0]
    size = setting.tokens(plans) * setting.model.hidden * setting.width / plans.tensor
    sent = setting.cluster.collective_cost("send_receive", size, 2, plans.pipeline_stride)
    cost = boundary_transfer(setting, plans)
    assert cost.seconds == pytest.approx(sent.seconds + setting.framework.host.exchange_seconds)
    assert cost.bytes == pytest.approx(sent.bytes)
    assert cost.busy == pytest.approx(sent.busy)


def test_the_step_graph_sends_each_hop_over_its_own_links(setting):
    plan = Plan(
        tensor=4, pipeline=8, data=2, sequence_parallel=True, rank_order="tensor-context-pipeline-data"
    )
    program, plans = step_program(setting, plan), Plans.of(plan)
    near, far = (float(hop_transfer(setting, plans, level).seconds[0]) for level in (NVLINK, INFINIBAND))
    assert near < far
    for stage in range(7):
        sent = program.transfers.get((stage, stage + 1), program.transfer)
        back = program.transfers.get((stage + 1, stage), program.transfer)
        assert sent.seconds == back.seconds == (far if stage % 2 else near)


def test_long_pipelines_are_sampled_by_whole_periods(setting):
    long = level_shares(setting.cluster, Plans.of(Plan(pipeline=1025, overlap_pipeline=True)))[:, 0]
    assert np.sum(long) == pytest.approx(1.0)
    assert long[INFINIBAND] == pytest.approx(1 / 8, rel=0.02)
