"""A search over placements of state: what leaves the device, and that it leaves only where it must."""

from __future__ import annotations

import pytest

import meshwright as mw
from core.errors import InputError
from hwmodels.cluster import clusters
from planner.training.offload import OPTIMIZER_SHARES, placements

QUESTION = {
    "model": "llama3.1-70b",
    "cluster": "dgx-h100",
    "gpus": 8,
    "seq_len": 2048,
    "global_batch": 8,
    "fix": {"schedule": "1f1b", "virtual_pipeline": 1, "context": 1},
}


@pytest.fixture(scope="module")
def found():
    return mw.plan(**QUESTION, offload=True, top=4, raw=True)


def test_placements_make_room_where_no_plan_fits(found):
    """70B parameters with Adam's state are 1.26 TB; 8 devices of 80 GB have 0.64."""
    assert not len(mw.plan(**QUESTION).result.plans)
    assert len(found.result.plans) == 4
    assert all(plan.place is not None for plan in found.result.plans)


def test_candidates_are_removed_or_scored(found):
    result = found.result
    assert sum(result.removed.values()) + result.scored == result.candidates


def test_a_searched_plan_simulates_to_the_same_step(found):
    plan = next(iter(found.result.plans))
    asked = {key: value for key, value in QUESTION.items() if key != "fix"}
    step = mw.simulate(**asked, plan=plan).to_dict()
    assert step["step_time_s"] == pytest.approx(float(found.result.step.time[0]), rel=1e-9)
    assert step["memory"]["fits"]


def test_state_leaves_only_where_the_plan_needs_it(found):
    asked = {key: value for key, value in QUESTION.items() if key != "fix"}
    room = 80 * 2**30 * (1 - found.result.space.headroom)
    for plan in found.result.plans:
        bare = mw.simulate(**asked, plan=plan.model_copy(update={"place": None, "update": None}))
        assert bare.to_dict()["memory"]["peak_bytes"] > room


def test_a_job_with_room_keeps_its_state_on_the_devices():
    small = {**QUESTION, "model": "llama3.1-8b", "fix": {**QUESTION["fix"], "zero": 3, "recompute": "full"}}
    plain, more = mw.plan(**small).result, mw.plan(**small, offload=True).result
    assert next(iter(more.plans)) == next(iter(plain.plans))


def test_a_node_without_ssds_is_offered_none_and_one_without_host_memory_is_refused():
    cluster = clusters.get("dgx-h100")
    drives = len(placements(cluster)) - len(OPTIMIZER_SHARES) - 2
    assert drives == bool(cluster.full_node.ssds and cluster.full_node.ssds.count)
    with pytest.raises(InputError, match=r"add node.host_bytes"):
        placements(cluster.model_copy(update={"node": None}))


def test_a_scenario_asks_for_it_by_a_key(found):
    fields = {key: value for key, value in QUESTION.items() if key not in ("fix", "seq_len", "global_batch")}
    workload = {"seq_len": QUESTION["seq_len"], "global_batch": QUESTION["global_batch"]}
    asked = {**fields, "workload": workload, "search": {"offload": True, "fix": QUESTION["fix"], "top": 4}}
    result = mw.plan(asked, raw=True).result
    assert list(result.plans) == list(found.result.plans)
    assert float(result.step.time[0]) == float(found.result.step.time[0])
