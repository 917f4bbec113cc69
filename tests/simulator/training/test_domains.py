"""Domains of levers: where a gain is expected whole, and what is left of it elsewhere."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import InputError
from planner.training.constraints import Constraints
from planner.training.search import search
from simulator.plan import Plan, Plans
from simulator.scenario import make_scenario
from simulator.training import predict, step_time
from simulator.training.domains import (
    DOMAINS_FILE,
    REALISED,
    Domain,
    reaches,
    read_domains,
    without_source,
)
from simulator.training.step_graph.build import simulate

LEVERS: dict[str, Any] = {"dispatcher": "flex", "grouped_launches": "fused-mlp", "overlap_expert": True}


def scenario(model: str = "nemotron-3-super-120b-a12b", gpus: int = 64, **plan: Any):
    workload = {"seq_len": 8192, "global_batch": 512, "precision": "mxfp8"}
    data = {"model": model, "cluster": "dgx-b300", "gpus": gpus, "framework": "megatron-bridge"}
    return make_scenario({**data, "workload": workload, "plan": plan}, "test", Path())


def planned(made) -> Plan:
    """The plan of a scenario that has one."""
    assert made.plan is not None
    return made.plan


def seconds(made):
    return float(predict(made.setting, Plans.of(planned(made))).time[0])


def test_shipped_domains_are_read():
    runs = read_domains(DOMAINS_FILE)
    assert {run.lever for run in runs} == {"grouped_launches", "graphs", "dispatcher", "overlap_expert"}
    assert max(run.gain for run in runs if run.value == "fused-mlp") < 0.2


def test_a_domain_reaches_as_far_as_a_factor_of_two():
    known = Domain(np.array([[8.0, 32.0, 4096.0]]), np.array([0.1]))
    points = np.array([[8, 32, 4096], [16, 16, 8192], [17, 32, 4096], [8, 32, 1024]], float)
    assert known.holds(points).tolist() == [True, True, False, False]
    assert Domain(np.zeros((0, 3)), np.zeros(0)).largest_gain == 0.0


def test_no_gain_exceeds_the_largest_measured_one_where_runs_are_near_either():
    """A gain of 1.2 in the logarithm at a point whose runs gained 0.1: 0.1 inside, a share of it outside."""
    runs = Domain(np.array([[8.0, 32.0, 4096.0]]), np.array([0.1]))
    inside, gain = np.array([True, False]), np.array([1.2, 1.2])
    assert runs.bounded(gain, inside) == pytest.approx([0.1, 0.1 * REALISED])
    assert runs.bounded(-gain, inside) == pytest.approx(-gain)


def test_a_measured_loss_goes_before_gains_that_predictions_credit():
    """A pair lost 7 %, a run is credited 20 % at the same point. Near them the loss, elsewhere nothing."""
    runs = Domain(np.array([[16.0, 8.0, 4096.0]] * 2), np.array([0.2, -0.07]), np.array([False, True]))
    gain, inside = np.array([0.1, 0.1]), np.array([True, False])
    assert runs.bounded(gain, inside) == pytest.approx([-0.07, 0.0])


def test_a_measured_loss_does_not_end_where_a_prediction_turns_into_a_smaller_one():
    """Steps would jump by 7 % where the sign of a predicted gain changes."""
    runs = Domain(np.array([[16.0, 8.0, 4096.0]]), np.array([-0.07]), np.array([True]))
    gain = np.array([0.01, 0.0, -0.01, -0.2])
    assert runs.bounded(gain, np.full(4, True)) == pytest.approx([-0.07, -0.07, -0.07, -0.2])


def test_an_overlap_is_judged_by_runs_whose_exchange_ends_where_its_own_does():
    """Qwen3-235B on B200: inside a node a pair lost; between nodes and in replayed steps runs gained."""

    def gained(**plan):
        plan = {"data": 64, "micro_batch": 1, "dispatcher": "all-to-all", **plan}
        workload = {"seq_len": 4096, "global_batch": 1024, "precision": "mxfp8"}
        data = {"model": "qwen3-235b-a22b", "cluster": "dgx-b200", "gpus": 64, "framework": "megatron-bridge"}
        with_it, without = (
            make_scenario(
                {**data, "workload": workload, "plan": {**plan, "overlap_expert": on}}, "test", Path()
            )
            for on in (True, False)
        )
        return seconds(without) / seconds(with_it)

    assert gained(expert=8) < 1.0 < gained(expert=16)
    fused = {"dispatcher": "flex", "grouped_launches": "fused-mlp"}
    assert gained(expert=8, **fused) < 1.0 < gained(expert=8, graphs="step", **fused)


def test_a_dispatcher_is_judged_by_runs_whose_exchange_ends_where_its_own_does():
    """Between nodes it saves copies that NICs would carry: no evidence for a plan inside a node."""
    place = "dispatcher", "flex", "blackwell", "experts"
    runs = [
        run for run in read_domains(DOMAINS_FILE) if (run.lever, run.value, run.generation, run.kind) == place
    ]
    inside, between = (max(run.gain for run in runs if run.reach == reach) for reach in ("node", "network"))
    assert inside < between / 2
    for expert, most in ((2, inside), (8, inside), (16, between)):
        plan: dict[str, Any] = {"expert": expert, "data": 64, "micro_batch": 1}
        plain, flex = (
            seconds(scenario("qwen3-30b-a3b", **plan, dispatcher=name)) for name in ("all-to-all", "flex")
        )
        assert plain / flex <= np.exp(most)


def test_what_a_dispatcher_saves_does_not_depend_on_what_launches_it():
    made = scenario("qwen3-30b-a3b", expert=8, data=64)
    plans, replayed = Plans.of(planned(made)), made.setting.with_choices(graphs="step")
    assert [reaches(replayed, plans, lever)[0] for lever in ("dispatcher", "overlap_expert")] == [
        "node",
        "replayed",
    ]


def test_a_plan_without_the_overlap_does_not_wait_beside_one_that_has_it():
    """Both lie near runs that lost by the overlap; a prediction of both is that of each alone."""
    plan: dict[str, Any] = {"expert": 8, "data": 64, "micro_batch": 1, "dispatcher": "all-to-all"}
    workload = {"seq_len": 4096, "global_batch": 1024, "precision": "mxfp8"}
    data = {"model": "qwen3-235b-a22b", "cluster": "dgx-b200", "gpus": 64, "framework": "megatron-bridge"}
    made = [
        make_scenario({**data, "workload": workload, "plan": {**plan, "overlap_expert": on}}, "test", Path())
        for on in (True, False)
    ]
    both = predict(made[0].setting, Plans.of([planned(one) for one in made])).time
    assert both.tolist() == pytest.approx([seconds(one) for one in made], rel=1e-12)


def test_no_gain_beyond_the_domain_exceeds_the_largest_measured_one():
    """64 experts of a rank: credited twice the speed by kernels alone, measured with 2 to 16."""
    plan: dict[str, Any] = {"expert": 8, "data": 64, "dispatcher": "flex"}
    changes: tuple[dict[str, Any], ...] = ({}, {"grouped_launches": "fused-mlp"})
    plain, fused = (seconds(scenario(**plan, **more)) for more in changes)
    most = max(run.gain for run in read_domains(DOMAINS_FILE) if run.value == "fused-mlp")
    assert 1.0 - 1e-12 <= plain / fused <= np.exp(most)


def test_inside_the_domain_a_gain_is_expected_whole():
    """Qwen3-235B with 4 experts of a rank, as Megatron Bridge ran it; without its runs, a part is left."""
    plan: dict[str, Any] = {"expert": 32, "data": 64, **LEVERS}
    made = scenario("qwen3-235b-a22b", **plan)
    step = predict(made.setting, Plans.of(planned(made)))
    with without_source("MB"), without_source("MREC"):
        later = predict(made.setting, Plans.of(planned(made)))
    assert later.time[0] >= step.time[0]


def test_a_step_sums_to_its_parts_and_both_timings_agree():
    made = scenario(expert=8, data=64, **LEVERS)
    step = predict(made.setting, Plans.of(planned(made)))
    assert sum(part[0] for part in step.seconds.values()) == pytest.approx(step.time[0])
    assert step_time(made.setting, Plans.of(planned(made)))[0] == pytest.approx(step.time[0])
    assert simulate(made.setting, planned(made)).period == pytest.approx(step.time[0], rel=0.02)


@pytest.mark.slow
def test_a_search_times_plans_as_predictions_do():
    made = scenario()
    found = search(made.setting, 64, Constraints.of({"expert": 8, "micro_batch": 1}), top=20)
    offered = {found.plans.plan(row).grouped_launches for row in range(len(found.plans))}
    assert len(found.plans) and offered
    seen = []
    search(
        made.setting,
        64,
        Constraints.of({"expert": 8, "micro_batch": 1}),
        keep=lambda plans, values: seen.append((plans, values)),
    )
    plans, values = seen[0]
    rows = np.linspace(0, len(plans) - 1, 12).astype(int)
    for row in rows:
        one = Plans.of(plans.plan(int(row)))
        assert predict(made.setting, one).time[0] == pytest.approx(values[row], rel=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text.replace("tokens_a_rank,", ""), "a driver is missing: 'tokens_a_rank'"),
        (lambda text: text.replace("kind,", ""), "a column is missing: 'kind'"),
        (lambda text: text.replace("overlap_expert", "overlap_experts"), "line .*: lever"),
        (lambda text: text.replace(",hybrid,", ",hybrid,-"), "experts_a_rank"),
        (lambda text: text.replace(",hybrid,", ",hybrid,many"), "experts_a_rank"),
        (lambda text: text.replace(",node,", ",nodes,"), "line .*: reach"),
    ],
)
def test_a_table_that_cannot_be_used_is_refused(tmp_path, change, words):
    path = tmp_path / "domains.csv"
    path.write_text(change(DOMAINS_FILE.read_text()))
    with pytest.raises(InputError, match=words):
        read_domains(path)
