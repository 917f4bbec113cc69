"""The announced length of an engine run against the graph that runs."""

from dataclasses import replace
from pathlib import Path

import pytest

from planner.prediction import engine_tasks
from simulator.scenario import make_scenario
from simulator.training.step_graph.build import step_program
from simulator.training.step_graph.expand import expand


@pytest.mark.parametrize(
    ("plan", "detail"),
    [
        ({"tensor": 2, "pipeline": 4}, False),
        ({"pipeline": 4, "zero": 2}, False),
        ({"context": 4, "pipeline": 2, "zero": 2}, False),
        ({"context": 2, "zero": 3}, False),
        ({"tensor": 2, "pipeline": 4}, True),
    ],
)
def test_tasks_are_estimated(plan, detail):
    data = {
        "model": "llama3.1-8b",
        "cluster": "dgx-h100",
        "gpus": 32,
        "workload": {"seq_len": 8192, "global_batch": 64},
        "plan": plan,
    }
    scenario = make_scenario(data, "here", Path())
    program = replace(step_program(scenario.setting, scenario.plan), detail=detail)
    assert engine_tasks(program) == pytest.approx(len(expand(program)), rel=0.25)
