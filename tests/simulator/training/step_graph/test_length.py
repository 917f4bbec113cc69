"""The announced length of an engine run against the graph that runs; what it leaves in memory."""

import gc
from dataclasses import replace
from pathlib import Path

import pytest

from core.errors import InputError
from meshwright.api.training import simulate
from simulator.engine import Clock
from simulator.scenario import make_scenario
from simulator.training.step_graph.build import step_program
from simulator.training.step_graph.expand import expand
from simulator.training.step_graph.length import engine_tasks

GROUPS = {"a100": "dgx-a100-80gb", "h100": "dgx-h100"}


def program_of(plan):
    data = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "gpus": 32,
        "workload": {"seq_len": 8192, "global_batch": 64},
        "plan": plan,
    }
    scenario = make_scenario(data, "here", Path())
    return step_program(scenario.setting, scenario.plan)


@pytest.mark.parametrize(
    ("plan", "detail"),
    [
        ({"tensor": 2, "pipeline": 4}, False),
        ({"pipeline": 4, "zero": 2}, False),
        ({"context": 4, "pipeline": 2, "zero": 2}, False),
        ({"context": 2, "zero": 3}, False),
        ({"tensor": 2, "pipeline": 4}, True),
        ({"tensor": 2, "pipeline": 4, "virtual_pipeline": 4, "schedule": "interleaved"}, False),
    ],
)
def test_tasks_are_estimated(plan, detail):
    program = replace(program_of(plan), detail=detail)
    assert engine_tasks(program) == pytest.approx(len(expand(program)), rel=0.25)


def test_a_run_whose_communication_meets_leaves_no_cycles():
    """The collector rests during a run: cycles would hold the memory of every task until its end."""
    program = program_of({"context": 2, "zero": 3})
    graph = expand(program)
    gc.collect()
    gc.disable()
    try:
        Clock(graph, program.contention).run()
        assert gc.collect() < len(graph) / 20
    finally:
        gc.enable()


def test_a_step_on_groups_of_nodes_is_refused_where_it_is_too_long():
    groups = [{"name": name, "cluster": cluster, "nodes": 1} for name, cluster in GROUPS.items()]
    join = {"fabric": "roce", "nics_per_node": 2, "nic_gbps": 200, "nodes_per_leaf": 4}
    scenario = {
        "model": "gpt2",
        "cluster": {"name": "mixed", "groups": groups, "join": join},
        "gpus": 16,
        "workload": {"seq_len": 1024, "global_batch": 2**24},
        "plan": {"tensor": 2, "pipeline": 4},
        "placement": {"stages": {"a100": 2, "h100": 2}},
    }
    with pytest.raises(InputError, match="8,388,608 micro batches"):
        simulate(scenario, engine=True)
