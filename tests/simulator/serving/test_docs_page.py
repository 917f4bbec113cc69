"""Pages of docs/serving name every key, kind and policy, and their examples of policies run."""

import json
import re
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from simulator import lengths
from simulator.serving.question.adapters import Adapters
from simulator.serving.question.deployment import Deployment
from simulator.serving.question.failures import Drain, Failures, Outage
from simulator.serving.question.finetuning import FineTuning
from simulator.serving.question.options import EngineOptions
from simulator.serving.question.overlap import StepOverlap
from simulator.serving.question.resizes import Resize
from simulator.serving.question.speculation import Speculation
from simulator.serving.question.start import StagedStart
from simulator.serving.question.state import KvState
from simulator.serving.question.stream import WeightStream
from simulator.serving.question.tiers import Tier
from simulator.serving.replica.records import Record
from simulator.serving.result import serve
from simulator.serving.scenario import ServingDefinition, make_serving
from simulator.serving.workload import Prefix, Serving, Slo, TraceFile, arrivals, programs
from simulator.serving.workload.serving import Chunks
from tests.simulator.serving.conftest import Run, make_requests

PAGES = sorted((Path(__file__).parents[3] / "docs" / "serving").glob("*.md"))
PAGE = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)


def row(name, field) -> str:
    default = "" if field.default in (None, "") else f"`{json.dumps(field.default, default=str)}`"
    if field.default_factory:
        default = ""
    elif field.default is PydanticUndefined:
        default = "needed"
    return f"| `{name}` | {default.replace(chr(34), '')} | {field.description} |"


@pytest.mark.parametrize(
    "model",
    [
        ServingDefinition,
        Serving,
        Slo,
        Prefix,
        TraceFile,
        Deployment,
        Speculation,
        StepOverlap,
        KvState,
        WeightStream,
        FineTuning,
        Adapters,
        StagedStart,
        EngineOptions,
        Failures,
        Drain,
        Resize,
        Outage,
        Tier,
        Chunks,
    ],
    ids=lambda one: one.__name__,
)
def test_every_key_is_documented(model):
    for name, field in model.model_fields.items():
        assert row(field.alias or name, field) in PAGE


@pytest.mark.parametrize(
    "kind", [*arrivals.KINDS, *lengths.KINDS, *programs.KINDS], ids=lambda one: one.__name__
)
def test_every_kind_is_documented(kind):
    assert f"| `{kind.model_fields['kind'].default}` |" in PAGE
    for name, field in kind.model_fields.items():
        assert name == "kind" or f"`{name}` ({field.description})" in PAGE


def test_every_column_of_the_requests_file_is_documented():
    for name in Record._fields:
        assert f"`{name}`" in PAGE


def test_the_example_of_a_policy_runs(monkeypatch):
    from simulator.serving.replica import schedulers

    code = re.findall("```python\n(.*?)```", PAGE, re.DOTALL)[0]
    names = {}
    exec(code, names)
    policy = names["Impatient"]
    monkeypatch.setattr(schedulers, "schedulers", {**schedulers.schedulers, policy.name: policy})
    requests = make_requests(60, rate=20.0)
    impatient = Run(requests, scheduler="impatient", scheduler_options={"patience": 0.1}, max_sequences=200)
    assert len(impatient.done) == len(requests)
    assert impatient.times[:, 1].mean() < Run(requests, max_sequences=200).times[:, 1].mean()


def test_the_example_of_a_router_keeps_a_conversation_on_one_replica(monkeypatch):
    from simulator.serving import routers

    names = {}
    exec(re.findall("```python\n(.*?)```", PAGE, re.DOTALL)[1], names)
    policy = names["ByUser"]
    monkeypatch.setattr(routers, "routers", {**routers.routers, policy.name: policy})
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 60,
            "arrivals": {"kind": "poisson", "rate": 5},
            "input": 200,
            "output": 20,
            "program": {"kind": "conversation", "turns": 3},
        },
        "deployment": {"replicas": 3, "router": "by-user"},
    }
    columns = serve(make_serving(data, "test", Path())).records.columns()
    assert (columns["replica"] == columns["program"] % 3).all()


def test_every_key_of_a_report_is_documented():
    page = (Path(__file__).parents[3] / "docs" / "json.md").read_text(encoding="utf-8")
    data = {
        "model": "llama3.2-1b",
        "cluster": "dgx-h100",
        "workload": {
            "kind": "serving",
            "requests": 20,
            "arrivals": {"kind": "poisson", "rate": 5},
            "input": 100,
            "output": 10,
        },
    }
    report = serve(make_serving(data, "test", Path())).to_dict()
    for name in (*report, *report["pools"][0]):
        assert f"`{name}`" in page, name
