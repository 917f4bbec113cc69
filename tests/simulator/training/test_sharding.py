"""Sharding: which states over whom, how often, and the bytes that follow."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.plan import Plan, Plans
from simulator.scenario import make_scenario
from simulator.training.data_parallel import InEachPass, once_a_step
from simulator.training.sharding import Sharding, StateGroups
from simulator.training.state_moves import move_state, sent_state

HYBRID = {"data": 64, "zero": 3, "shard_group": 8}


@pytest.fixture(scope="module")
def setting():
    data = {
        "model": "llama2-7b",
        "cluster": "dgx-h100",
        "gpus": 64,
        "framework": "torch-fsdp",
        "workload": {"seq_len": 2048, "global_batch": 512},
    }
    return make_scenario(data, "test", Path()).setting


def sharding(setting, *plans):
    return Sharding(setting, Plans.of([Plan(**plan) for plan in plans]))


def sent(cost):
    """Bytes that a rank sends over all levels, shape (plans,)."""
    return cost.bytes.sum(axis=0)


def test_each_zero_stage_shards_one_more_state(setting):
    found = sharding(setting, *({"data": 64, "zero": zero} for zero in range(4)))
    assert found.optimizer.tolist() == [False, True, True, True]
    assert found.gradients.tolist() == [False, False, True, True]
    assert found.parameters.tolist() == [False, False, False, True]


def test_frozen_parameters_are_in_no_bucket():
    """Megatron Core fills its buckets with the parameters that have gradients."""
    data = {
        "model": "llama2-70b",
        "cluster": "dgx-h100",
        "gpus": 8,
        "framework": "nemo",
        "workload": {"seq_len": 8192, "global_batch": 8},
    }
    adapter = {"adapter": {"rank": 16, "targets": ["attention"]}}
    whole, tuned = (
        make_scenario(data | {"workload": data["workload"] | more}, "test", Path()).setting
        for more in ({}, adapter)
    )
    plan = {"data": 8, "zero": 1}
    parameters = 7e10
    assert sharding(whole, plan).buckets(parameters) > 1000
    assert sharding(tuned, plan).buckets(parameters) < 5


@given(
    tensor=st.sampled_from([1, 2, 4]),
    data=st.sampled_from([1, 4, 16]),
    context=st.sampled_from([1, 2]),
    expert=st.sampled_from([1, 2, 4]),
    group=st.sampled_from([0, 1, 2, 4]),
)
def test_shards_times_copies_are_the_ranks_that_share_a_state(tensor, data, context, expert, group):
    if (tensor * data * context) % expert or (group and (data * context) % group):
        return
    plans = Plans.of(Plan(tensor=tensor, data=data, context=context, expert=expert, shard_group=group))
    dense, experts = StateGroups.dense(plans), StateGroups.experts(plans)
    assert dense.shard * dense.replicas == data * context
    assert experts.shard[0] * experts.replicas[0] <= tensor * data * context // expert
    assert group == 0 or dense.shard[0] <= group


def test_shards_add_up_to_the_whole_state(setting):
    whole, experts = np.array([7e9, 7e9, 7e9]), np.zeros(3)
    found = sharding(setting, {"data": 64}, {"data": 64, "zero": 1}, HYBRID)
    assert (found.owned(whole, experts) * [1, 64, 8]).tolist() == whole.tolist()


def test_ranks_that_keep_a_shard_of_the_gradients_reduce_in_every_pass(setting):
    framework = setting.framework.changed({"gradients": {"once_in_pipelines": False}})
    setting = replace(setting, framework=framework)
    plans = [{"data": 8, "zero": zero, "pipeline": 8} for zero in range(4)]
    breadth = {"data": 8, "zero": 2, "pipeline": 8, "virtual_pipeline": 2, "schedule": "breadth-first"}
    rounds = sharding(setting, *plans, breadth).reductions(np.full(5, 64.0))
    assert rounds[:4].tolist() == [1, 1, 64, 64]
    # Micro batches that share a gather share a reduction.
    assert rounds[4] < 64


def test_stages_of_torch_reduce_sharded_gradients_after_the_last_micro_batch(make_setting):
    setting = make_setting("llama3-8b", framework="torch-fsdp", devices=64)
    plans = [{"data": 8, "zero": 2, "pipeline": 8}, {"data": 64, "zero": 2}]
    assert sharding(setting, *plans).reductions(np.full(2, 64.0)).tolist() == [1, 64]


def test_a_round_moves_the_bytes_of_a_ring(setting):
    """(n - 1) / n of the state for a gather or a reduce-scatter, twice that for an all-reduce."""
    count = 7e9
    found = sharding(setting, {"data": 64}, {"data": 64, "zero": 3}, HYBRID)
    gather, reduce = move_state(found, np.full(3, count), np.zeros(3))
    setting, ring = found.setting, 63 / 64
    scatters = found.scatters
    assert scatters.tolist() == [False, True, True]
    assert sent(gather)[:2] == pytest.approx(count * setting.framework.gathers.bytes * ring)
    expected = count * setting.choices.reduce_bytes * np.array([2 * ring, ring, 7 / 8 + 2 * 7 / 8 / 8])
    assert sent(reduce) == pytest.approx(expected)
    # Copies of a shard lie on other nodes; its own ranks are neighbours.
    assert reduce.bytes[-1, 2] == pytest.approx(2 * 7 / 8 / 8 * count * setting.choices.reduce_bytes)


def test_a_round_cut_into_calls_moves_the_same_bytes_more_slowly(setting):
    found = sharding(setting, {"data": 64, "zero": 3})
    whole, cut = (move_state(found, np.array([7e9]), np.zeros(1), calls, calls) for calls in (1.0, 32.0))
    for once, often in zip(whole, cut, strict=True):
        assert sent(often) == pytest.approx(sent(once))
        assert often.seconds > once.seconds


def without_slow_down(passes: InEachPass) -> InEachPass:
    parts = passes.forward, passes.backward, passes.reduce
    return InEachPass(*(replace(part, slows=0.0) for part in parts))


@pytest.mark.parametrize(
    "plan",
    [
        {"data": 64, "zero": 1},
        {"data": 64, "zero": 3},
        {"data": 64, "zero": 3, "shard_group": 8},
        {"data": 16, "tensor": 4, "zero": 0},
        {"data": 64, "expert": 8, "zero": 3},
    ],
)
def test_bytes_that_contend_are_those_of_the_rings(make_setting, plan):
    found = sharding(make_setting("mixtral-8x7b", "dgx-h100"), plan)
    counts = np.array([2e9]), np.array([3e9])
    for cost, contending in zip(move_state(found, *counts), sent_state(found, *counts), strict=True):
        assert contending == pytest.approx(sent(cost))


def test_parameters_are_exchanged_in_passes_or_once_a_step_not_both(setting):
    dense, none, m = np.full(2, 7e9), np.zeros(2), np.full(2, 8.0)
    found = sharding(setting, {"data": 64, "zero": 1}, {"data": 64, "zero": 3})
    step = once_a_step(found, dense, none, m)
    for exchange in (step.gather, step.reduce):
        assert exchange.cost.seconds[0] > 0
        assert exchange.cost.seconds[1] == 0
    layers = np.full(2, 32.0)
    passes = InEachPass.of(found, layers, dense, none, m)
    passes = without_slow_down(passes)
    shown = passes.exposed(np.full(2, 1e9), np.full(2, 1e9))
    # Beside endless kernels one layer's gather stays visible forward, a gather and a reduction backward.
    assert shown[0] == pytest.approx(passes.forward.cost.seconds / 32)
    assert shown[1] == pytest.approx((passes.backward.cost.seconds + passes.reduce.cost.seconds) / 32)
    assert passes.exposed(none, none)[0] == pytest.approx(passes.forward.cost.seconds)


def test_weights_within_the_reuse_distance_are_not_gathered_again(setting):
    """Of a layer that two uses of its weights span, what lies within half the distance of its end stays."""
    framework = setting.framework.changed({"gathers": {"again": True, "reuse_parameters": 1e9}})
    plans = Plans.of([Plan(data=64, zero=3, recompute=word) for word in ("full", "full", "full", "none")])
    found = Sharding(replace(setting, framework=framework), plans)
    layers = np.array([4e8, 8e8, 8e9, 8e9])
    assert found.backward_gathers(layers) == pytest.approx([1.0, 1.375, 1.9375, 1.0])


def test_layers_beyond_the_prefetch_budget_overlap_nothing(setting):
    framework = setting.framework.changed({"gathers": {"prefetch_parameters": 1e8}})
    found = Sharding(replace(setting, framework=framework), Plans.of(Plan(data=64, zero=3)))
    none = np.zeros(1)
    for dense, exposed in ((3.2e9, False), (6.4e9, True)):
        passes = InEachPass.of(found, np.full(1, 32.0), np.array([dense]), none, np.full(1, 8.0))
        shown = without_slow_down(passes).exposed(np.full(1, 1e9), np.full(1, 1e9))
        assert (sum(shown) == pytest.approx(passes.cost.seconds)) == exposed
