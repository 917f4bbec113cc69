"""The search over groups: limits in which it is the search of one kind, and shares of work."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from core.errors import InputError
from planner.mixed import search_mixed
from planner.mixed.candidates import _proportional
from planner.mixed.fitting import _weights
from planner.training.constraints import Constraints
from simulator.scenario import make_mixed
from simulator.training.mixed import predict_mixed

JOIN = {"fabric": "infiniband", "nics_per_node": 8, "nic_gbps": 400, "nodes_per_leaf": 32}


def question(one="dgx-h100", other="dgx-a100-80gb", names=("one", "other"), **keys):
    groups = [
        {"name": name, "cluster": cluster, "nodes": 1}
        for name, cluster in zip(names, (one, other), strict=True)
    ]
    return {
        "model": "llama3-8b",
        "cluster": {"name": "mixed", "groups": groups, "join": JOIN},
        "gpus": 16,
        "workload": {"seq_len": 4096, "global_batch": 64},
        **keys,
    }


def best(data, **options):
    return search_mixed(data, "test", Path(), 3, **options)


QUESTIONS = {
    "dense": question(),
    "small": question("dgx-a100-40gb", model="llama2-7b"),
    "experts": question(model="qwen3-30b-a3b"),
}


@cache
def found_of(name):
    """The search of one of the questions, which several tests read."""
    return best(QUESTIONS[name])


@pytest.mark.slow
def test_a_slower_group_carries_less_and_never_slows_the_faster_one():
    first = found_of("dense").plans[0]
    shares = {group.share.group.name: group.share for group in first.step.groups}
    if len(shares) == 2:
        one, other = shares["one"], shares["other"]
        assert (one.layers, one.micro_batches) > (other.layers, other.micro_batches)
    alone = min(
        predict_mixed(mixed.setting, mixed.plan).seconds
        for data in tensors()
        if (mixed := make_mixed(data, "test", Path())) is not None
    )
    assert first.step.seconds < alone


def tensors():
    """The H100s alone, by tensor degree."""
    for tensor in (1, 2, 4, 8):
        plan = {"tensor": tensor, "data": 8 // tensor, "zero": 1, "recompute": "full"}
        yield question(plan=plan | {"sequence_parallel": tensor > 1}, placement={"stages": {"one": 1}})


@pytest.mark.slow
def test_names_and_order_of_groups_change_nothing():
    swapped = question("dgx-a100-80gb", "dgx-h100", ("other", "one"))
    assert found_of("dense").plans[0].seconds == pytest.approx(best(swapped).plans[0].seconds, rel=1e-9)


def test_every_plan_uses_devices_that_the_groups_have():
    for plan in found_of("dense").plans:
        assert all(group.share.devices <= group.share.group.devices for group in plan.step.groups)
        assert plan.fits


@pytest.mark.slow
def test_experts_are_spread_over_ranks_of_one_group():
    plans = found_of("experts").plans
    assert plans
    for plan in plans:
        assert plan.data["plan"]["expert"] > 1
        assert all(group.share.devices % plan.data["plan"]["expert"] == 0 for group in plan.step.groups)


@pytest.mark.parametrize("total", [32, 80, 61])
def test_shares_add_up_and_follow_speed(total):
    counts, speeds = {"slow": 2, "fast": 3}, {"slow": 1.0, "fast": 2.5}
    shares = _proportional(counts, speeds, total)
    assert shares
    for each in shares:
        assert sum(counts[name] * each[name] for name in counts) == total
        assert each["slow"] < each["fast"]


def test_a_search_without_a_shape_says_what_was_held():
    with pytest.raises(InputError, match="tensor=3"):
        best(question(), constraints=Constraints.of({"tensor": 3}))


@pytest.mark.parametrize("name", QUESTIONS)
def test_no_plan_is_faster_than_the_bound(name):
    found = found_of(name)
    assert found.plans
    assert all(found.least_s < plan.seconds for plan in found.plans)
    assert found.least_s > 0.3 * found.plans[0].seconds


@pytest.mark.slow
def test_two_groups_of_one_kind_have_the_bound_of_both():
    """Twice the devices of one kind halve the least time."""
    twice, once = best(question(other="dgx-h100")).least_s, best(one_group()).least_s
    assert twice == pytest.approx(once / 2, rel=1e-9)


def one_group():
    data = question(other="dgx-h100")
    data["cluster"]["groups"] = data["cluster"]["groups"][:1]
    return data | {"gpus": 8}


def test_weights_are_as_equal_as_memory_allows():
    replicas = {"small": 8, "large": 8}
    assert _weights(replicas, {"small": 2.0, "large": 2.0}) == {"small": 1.0, "large": 1.0}
    assert _weights(replicas, {"small": 0.5, "large": 2.0}) == {"small": 0.5, "large": 1.5}
    assert _weights(replicas, {"small": 0.5, "large": 1.2}) == {}
    assert _weights(replicas, {"small": -0.1, "large": 3.0}) == {}


@pytest.mark.slow
def test_unequal_state_fits_what_equal_state_does_not():
    """14B on 8 cards of 24 GB beside 8 H100: equal shards overfill the cards."""
    data = question("dgx-h100", "rtx-4090-8", model="qwen3-14b")
    found = best(data, constraints=Constraints.of({"zero": 3, "data": 16}))
    assert found.plans
    shares = {group.share.group.name: group.share.state.device for group in found.plans[0].step.groups}
    assert shares["one"] > 1 > shares["other"]


@pytest.mark.slow
def test_a_batch_that_no_group_can_share_names_one_that_all_can():
    asked = question(gpus=80)
    for group in asked["cluster"]["groups"]:
        group["nodes"] = 5
    with pytest.raises(InputError, match=r"5 must divide the global batch \(64\), as 65"):
        best(asked)
    asked["workload"]["global_batch"] = 65
    assert best(asked).plans
