"""The search over groups: limits in which it is the search of one kind, and shares of work."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.errors import InputError
from planner.constraints import Constraints
from planner.mixed import _proportional, search_mixed
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


def test_a_slower_group_carries_less_and_never_slows_the_faster_one():
    found = best(question())
    first = found.plans[0]
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


def test_names_and_order_of_groups_change_nothing():
    swapped = question("dgx-a100-80gb", "dgx-h100", ("other", "one"))
    assert best(question()).plans[0].seconds == pytest.approx(best(swapped).plans[0].seconds, rel=1e-9)


def test_every_plan_uses_devices_that_the_groups_have():
    for plan in best(question()).plans:
        assert all(group.share.devices <= group.share.group.devices for group in plan.step.groups)
        assert plan.fits


def test_experts_are_spread_over_ranks_of_one_group():
    found = best(question(model="qwen3-30b-a3b"))
    assert found.plans
    for plan in found.plans:
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
