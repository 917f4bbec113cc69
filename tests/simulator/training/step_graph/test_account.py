"""Where a rank's step went: the parts add up, and are those of the analytic breakdown."""

from dataclasses import replace
from pathlib import Path

import pytest

from simulator.engine.clock import Clock
from simulator.engine.graph import TaskGraph
from simulator.engine.timeline import Timeline
from simulator.plan import Plans
from simulator.scenario import make_scenario
from simulator.training import predict
from simulator.training.step_graph import run
from simulator.training.step_graph.account import BUBBLE, account, busiest
from simulator.training.step_graph.build import step_program
from simulator.training.step_graph.streams import COMPUTE, DATA, PIPELINE, TENSOR


def timeline(*tasks):
    """A timeline of tasks on rank 0: stream, part, seconds, and the places of those that it waits for."""
    graph = TaskGraph()
    for stream, part, seconds, after in tasks:
        graph.add(graph.lane_of(0, stream), seconds, "task", graph.part_of(part), after=after)
    starts, ends = Clock(graph).run()
    return Timeline(graph, starts, ends)


def test_what_kernels_hide_is_not_counted_and_of_several_the_first_kind_is():
    ran = timeline(
        (COMPUTE, "gemm", 2.0, ()),
        (TENSOR, "tensor", 5.0, ()),
        (PIPELINE, "pipeline", 7.0, ()),
        (DATA, "parameters", 8.0, ()),
        (DATA, "gradients", 1.0, ()),
        (COMPUTE, "optimizer", 1.0, (4,)),
    )
    assert account(ran, 0) == pytest.approx(
        {"gemm": 2.0, "tensor": 3.0, "pipeline": 2.0, "parameters": 1.0, "gradients": 1.0}
        | {"optimizer": 1.0, BUBBLE: 0.0}
    )


def test_waiting_for_nothing_of_ones_own_is_the_bubble():
    graph = TaskGraph()
    first = graph.add(graph.lane_of(0, COMPUTE), 3.0, "forward", graph.part_of("compute"))
    graph.add(graph.lane_of(1, COMPUTE), 2.0, "gemm", graph.part_of("recompute"), after=[first])
    ran = Timeline(graph, *Clock(graph).run())
    assert account(ran, 0) == {"compute": 3.0, BUBBLE: 2.0}
    assert account(ran, 1) == {"recompute": 2.0, BUBBLE: 3.0}
    assert busiest(ran) == 0


PLANS = {
    "pipeline": {"tensor": 4, "pipeline": 4, "recompute": "selective", "overlap_tensor": "none"},
    "interleaved": {"tensor": 2, "pipeline": 4, "virtual_pipeline": 2, "zero": 1, "overlap_tensor": "none"},
    "FSDP": {"zero": 3},
    "no closed form": {"pipeline": 8, "schedule": "zb-h1"},
}


@pytest.mark.parametrize("detail", [False, True])
@pytest.mark.parametrize("name", list(PLANS))
def test_parts_add_up_to_the_step_of_every_rank(name, detail):
    setting, plan = scenario(PLANS[name])
    ran = run(replace(step_program(setting, plan), detail=detail))
    for rank in range(ran.ranks):
        parts = account(ran, rank)
        assert sum(parts.values()) == pytest.approx(ran.seconds)
        assert min(parts.values()) >= 0.0


@pytest.mark.parametrize("name", ["pipeline", "interleaved"])
def test_kernels_take_as_long_as_in_the_analytic_breakdown(name):
    setting, plan = scenario(PLANS[name])
    ran = run(replace(step_program(setting, plan), detail=True))
    found, seconds = account(ran, busiest(ran)), predict(setting, Plans.of(plan)).seconds
    waits = sum(seconds[part][0] for part in ("variation", "launch"))
    kinds = set(found) & {"gemm", "attention", "norm", "rope", "activation", "elementwise", "cross_entropy"}
    assert {"gemm", "attention", "norm"} <= kinds
    longer = 1 + waits / sum(seconds[kind][0] for kind in kinds)
    for kind in kinds:
        assert found[kind] == pytest.approx(longer * seconds[kind][0], rel=0.02)
    assert found["tensor"] == pytest.approx(seconds["tensor"][0], rel=0.05)
    assert found.get("recompute", 0.0) == pytest.approx(seconds["recompute"][0], rel=0.02)


def scenario(plan):
    data = {
        "model": "llama2-7b",
        "cluster": "dgx-a100-80gb",
        "gpus": 16,
        "workload": {"seq_len": 2048, "global_batch": 64},
        "plan": plan,
    }
    made = make_scenario(data, "test", Path())
    return made.setting, made.plan
