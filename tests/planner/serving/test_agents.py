"""Agents that deployments carry: laws of programs as samples, the number carried, refusals."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import meshwright as mw
from core.errors import InputError
from meshwright.deployments import deployment_question
from planner.serving.agents import WITHOUT, _most, _tried
from simulator.serving.result import serve
from simulator.serving.scenario import make_serving

ASKED = {"model": "llama3.1-8b", "cluster": "dgx-h100", "gpus": 2, "ttft": 0.5, "tpot": 0.009}
TREE = {
    "model": "llama3.1-8b",
    "cluster": "dgx-h100",
    "gpus": 1,
    "workload": {
        "kind": "serving",
        "arrivals": {"kind": "closed", "concurrency": 4},
        "input": 2000,
        "output": 100,
        "program": {"kind": "agent", "rounds": 2, "fork": 3, "tool": 2.0},
        "slo": {"ttft": 0.5, "tpot": 0.02},
    },
    "deployment": {"engine": "vllm-0.19"},
}


@pytest.fixture(scope="module")
def found():
    return mw.deploy(
        **ASKED,
        use="agents",
        isl=4000,
        prefix=3400,
        osl=100,
        fix={"tensor": 1, "pipeline": 1, "token_budget": 2048, "max_sequences": 256},
    )


def test_turns_have_the_asked_mean_and_repeat_what_came_before():
    question = deployment_question(None, {**ASKED, "use": "agents"})
    sample = question.sample
    assert question.prompt == pytest.approx(16_000, abs=64)
    assert sample.turns == 9
    assert question.repeated == pytest.approx(question.prompt - 857, rel=0.01)
    assert sample.between_s == pytest.approx(5.0 * 8 / 9, rel=0.1)


def test_a_tree_is_walked_with_its_workers():
    question = deployment_question(TREE, {})
    assert question.sample.turns == 2 * (1 + 3)
    first, *workers = question.sample.prompts[:4]
    assert workers == [first + 100] * 3


@pytest.mark.slow
def test_the_number_holds_and_a_tenth_more_does_not(found):
    """One replica carries its number, and misses with 10 % more; each mechanism left out carries fewer."""
    question, row = found.search.question, found.agents.rows[0]
    alone = row.plan.groups[0].replicas == 1
    assert _tried(found.agents.question, row.plan, row.agents).holds
    if alone:
        assert not _tried(found.agents.question, row.plan, round(1.1 * row.agents) + 1).holds
    assert question.programs
    assert row.agents_a_kilowatt == pytest.approx(1e3 * row.agents / row.plan.watts)
    assert set(found.agents.without) <= set(WITHOUT)
    assert found.agents.without["KV kept during tool calls"] < 0.8 * row.agents


def test_the_scenario_has_the_agents(found):
    scenario = found.scenario()
    assert scenario["workload"]["arrivals"]["concurrency"] == found.agents.rows[0].agents
    setting = make_serving(scenario, "plan", Path())
    assert setting.gpus == found.best.devices
    agents = found.to_dict()["agents"]
    assert agents["deployments"][0]["agents"] == found.agents.rows[0].agents
    assert "agents at work" in str(found)


@pytest.mark.slow
def test_fewer_agents_need_fewer_replicas(found):
    row = found.agents.rows[0]
    few = mw.deploy(
        **ASKED,
        use="agents",
        isl=4000,
        prefix=3400,
        osl=100,
        concurrency=max(row.agents // 3, 1),
        fix={"tensor": 1, "pipeline": 1, "token_budget": 2048, "max_sequences": 256},
    )
    assert few.best.devices == 1
    assert few.agents.rows[0].agents == row.agents // 3


@pytest.mark.slow
def test_a_tighter_deadline_carries_fewer_agents(found):
    question, plan = found.agents.question, found.agents.rows[0].plan
    run = serve(make_serving(found.scenario(), "plan", Path()))
    median = sorted(run.fleet.program_seconds)[len(run.fleet.program_seconds) // 2]
    program = question.workload.program.model_copy(update={"deadline": 0.8 * median})
    tight = mw.deploy(
        **ASKED,
        use="agents",
        isl=4000,
        prefix=3400,
        osl=100,
        deadline=f"{0.8 * median:.1f}s",
        fix={"tensor": 1, "pipeline": 1, "token_budget": 2048, "max_sequences": 256},
    )
    assert tight.agents.question.workload.program.deadline == pytest.approx(program.deadline, abs=0.1)
    assert tight.agents.rows[0].agents < found.agents.rows[0].agents
    assert _most(tight.agents.question, plan, 4)[0] <= found.agents.rows[0].agents


@pytest.mark.slow
def test_recorded_sessions_are_carried(tmp_path):
    plain = {"type": "s", "model": "m", "out": 64, "input_types": [], "output_types": [], "stop": ""}
    calls = [
        {
            **plain,
            "t": float(turn),
            "in": 64 * (turn + 9),
            "hash_ids": list(range(turn + 9)),
            "think_time": 0.5,
        }
        for turn in range(12)
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"id": "x", "block_size": 64, "requests": calls}))
    found = mw.deploy(
        **ASKED | {"gpus": 1},
        requests=str(path),
        fix={"token_budget": 2048, "max_sequences": 256, "tensor": 1},
    )
    assert found.search.question.sample.turns == 12
    assert found.agents.rows[0].agents > 1


@pytest.mark.parametrize(
    ("scenario", "change", "says"),
    [
        (None, {**ASKED, "use": "agents", "refine": 1}, "--refine"),
        (None, {**ASKED, "use": "agents", "tries": {"router": ["llm-d"]}}, "--try"),
        (None, {**ASKED, "use": "chat", "deadline": "100s"}, "single ones"),
        (None, {**ASKED, "use": "agents", "rate": 2.0, "deadline": "100s"}, "single ones"),
        (TREE, {"rate": 2.0}, "leave the rate out"),
    ],
)
def test_questions_that_agents_do_not_have_are_refused(scenario, change, says):
    with pytest.raises(InputError, match=says):
        mw.deploy(scenario, **change)
