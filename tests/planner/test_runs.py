"""Runs of weeks in the planner: ranking by the whole run, elastic plans, timed stragglers."""

from __future__ import annotations

import pytest

from core.errors import InputError
from meshwright.api.runs import plan_run, run

SMALL = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 64,
    "workload": {"seq_len": 8192, "global_batch": 128},
    "plan": {"tensor": 2, "pipeline": 2, "zero": 1, "recompute": "full"},
}
FAILING = {"kind": "exponential", "mtbf": "1 d", "of": "node", "nodes": 1}
WEEK = {"steps": 40_000, "faults": FAILING, "replications": 8}
SAVED = {"mechanism": "asynchronous"}


def asked(**changed):
    return {**SMALL, "run": {**WEEK, "checkpoints": SAVED, **changed}}


def test_a_run_finishes_later_than_its_steps_and_states_add_up():
    report = run(asked()).to_dict()["run"]
    assert report["finish_days"]["mean"] > report["work_days"]
    assert sum(report["states_s"].values()) == pytest.approx(report["finish_days"]["mean"] * 86400)
    assert report["saved_bytes"] == pytest.approx(8.03e9 * report["bytes_per_parameter"], rel=0.01)


def test_without_faults_and_checkpoints_a_run_is_its_steps():
    done = run({**SMALL, "run": {"steps": 1234}})
    step = done.planned.prediction.step.time[0]
    assert done.planned.outcome.mean_s == pytest.approx(1234 * step, rel=1e-9)


def test_without_checkpoints_the_closed_form_is_that_of_one_period():
    question = {**SMALL, "run": {"steps": 2000, "replications": 400}}
    faults = {**FAILING, "mtbf": "2 d"}
    done = run({**question, "run": {**question["run"], "faults": faults}}).planned.outcome
    assert done.closed_form["exact"] == pytest.approx(done.inputs.work_s / done.mean_s, rel=0.1)


def test_an_empty_overlap_changes_nothing():
    stages = {"detect": 60, "initialise": 30, "load": 20}
    plain, empty = (
        run(asked(recovery={**stages, "overlap": each})).planned.outcome.mean_s for each in ([], [[]])
    )
    assert plain == empty


def test_a_search_beats_the_plan_that_is_given():
    stated = run(asked()).planned.outcome.quantile(0.5) / 86400
    best = plan_run(asked(), top=3).best
    assert best is not None
    assert best.value <= stated


def test_mechanisms_are_compared_where_none_is_stated():
    question = {**SMALL, "run": {"steps": 40_000, "faults": FAILING, "replications": 4}}
    found = plan_run(question, top=8)
    assert found.best.mechanism != "synchronous"
    assert all(each.mechanism for each in found.sizes[0].ranked)


def test_more_nodes_finish_sooner_until_faults_outrun_them():
    question = {**SMALL, "run": {"tokens": 5e10, "faults": FAILING, "replications": 4}}
    del question["plan"]
    found = plan_run(question, gpus=(16, 64))
    days = [size.ranked[0].value for size in found.sizes]
    assert days == sorted(days, reverse=True)


def test_a_timed_straggler_costs_its_days():
    slow = {"stage": 1, "slowdown": 1.5, "from": "1 h", "until": "3 h"}
    healthy, slowed = (run(asked(faults=None, stragglers=each)).planned.outcome for each in ([], [slow]))
    lost = slowed.mean_s - healthy.mean_s
    assert 0 < lost < 2 * 3600
    assert slowed.seconds["stragglers"] == pytest.approx(lost, rel=0.05)


def test_dropping_a_replica_beats_a_restart_and_searching_again_beats_waiting():
    slow = {"recovery": {"detect": 600, "replace": {"requeue": 1800}}}
    restart, dropped = (
        run(asked(**slow, elastic=each)).planned.outcome.goodput for each in ("restart", {"drop": "data"})
    )
    assert dropped > restart
    waiting, again = (
        run(asked(elastic=each, recovery={"replace": {"warm_spare": 60}})).planned.outcome.goodput
        for each in ("wait", {"replan": 2})
    )
    assert again > waiting


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"spares": 5000}, "run.spares"),
        ({"faults": {**FAILING, "mtbf": "1 h"}}, "never finishes; "),
        ({"faults": "llama4"}, "unknown fault preset"),
        ({"checkpoints": {"mechanism": "synchronous", "every": 0}}, "above zero"),
        (
            {"checkpoints": {"mechanism": "asynchronous", "every": "1 s", "writer_bytes_s": 1e6}},
            "longer than its period",
        ),
        ({"steps": None, "tokens": 10}, "less than half a step"),
        ({"stragglers": [{"stage": 7, "slowdown": 2}]}, "run.stragglers.0.stage"),
    ],
)
def test_bad_runs_are_refused_with_their_key(changed, told):
    with pytest.raises(InputError) as caught:
        run(asked(**changed))
    assert told in str(caught.value)


def test_a_plan_with_one_replica_cannot_lose_it():
    question = asked(elastic={"drop": "data"})
    question["plan"] = {"tensor": 8, "pipeline": 8, "zero": 1, "recompute": "full"}
    with pytest.raises(InputError, match="cannot lose one"):
        run(question)


def test_a_save_that_exceeds_host_memory_is_refused():
    node = {"host_bytes": 1e9}
    cluster = {
        "name": "small",
        "device": "h100-sxm",
        "devices_per_node": 8,
        "nodes": 8,
        "levels": [{"name": "nvlink", "kind": "nvswitch", "devices": 8, "bandwidth": 450e9}],
        "network": {"fabric": "roce", "nics_per_node": 8, "nic_gbps": 400},
        "node": node,
    }
    with pytest.raises(InputError, match="host memory"):
        run({**asked(), "cluster": cluster})
