"""`meshwright simulate`: the given plan, by name, path or inline; and every shipped scenario runs."""

import json
import re

import pytest
import yaml

from hwmodels.cluster import clusters
from hwmodels.device import devices
from meshwright.api import training as api
from meshwright.questions.scenarios import question_of, shipped_scenarios
from simulator.models import models


def test_the_parts_of_step_and_memory_add_up(run, scenario):
    report = json.loads(run("simulate", str(scenario()), "--json").out)
    assert sum(report["time_breakdown_s"].values()) == pytest.approx(report["step_time_s"])
    stages = report["memory"]["stages"]
    assert sum(stage["layers"] * stage["count"] for stage in stages) == models.get("llama2-7b").layers
    for stage in stages:
        assert sum(stage["parts_bytes"].values()) == pytest.approx(stage["total_bytes"])


def test_missing_fields_of_a_plan_take_the_frameworks_defaults(run, scenario):
    fsdp = scenario(
        ("plan: {tensor: 2, pipeline: 2, micro_batch: 1, zero: 1}", "framework: torch-fsdp\nplan: {}")
    )
    plan = json.loads(run("simulate", str(fsdp), "--json").out)["plan"]
    assert (plan["zero"], plan["data"]) == (3, 16)


def test_virtual_stages_mean_the_interleaved_schedule(run, scenario):
    path = scenario(("pipeline: 2", "pipeline: 2, virtual_pipeline: 4"))
    assert json.loads(run("simulate", str(path), "--json").out)["plan"]["schedule"] == "interleaved"


def test_a_name_a_path_and_a_mapping_mean_the_same(run, scenario, tmp_path):
    named = run("simulate", str(scenario()), "--json").out
    model = models.get("llama2-7b").model_dump(mode="json", exclude_defaults=True)
    cluster = clusters.get("dgx-a100-80gb").model_dump(mode="json", exclude={"device"}, exclude_defaults=True)
    cluster["device"] = "a100-sxm-80gb"
    parts = {"llama2-7b": ("model", model), "dgx-a100-80gb": ("cluster", cluster)}
    for name, (kind, definition) in parts.items():
        inline = json.dumps(definition)
        assert run("simulate", str(scenario((f"{kind}: {name}", f"{kind}: {inline}"))), "--json").out == named
        (tmp_path / "beside.yaml").write_text(yaml.safe_dump(json.loads(inline)), encoding="utf-8")
        assert run("simulate", str(scenario((name, "beside.yaml"))), "--json").out == named


def test_a_cluster_beside_the_scenario_finds_a_device_beside_itself(run, scenario, tmp_path):
    folder = tmp_path / "hardware"
    folder.mkdir()
    device = devices.get("a100-sxm-80gb").model_dump(mode="json", exclude_defaults=True)
    cluster = clusters.get("dgx-a100-80gb").model_dump(mode="json", exclude={"device"}, exclude_defaults=True)
    (folder / "gpu.yaml").write_text(yaml.safe_dump(device), encoding="utf-8")
    beside = yaml.safe_dump({**cluster, "device": "./gpu.yaml"})
    (folder / "cluster.yaml").write_text(beside, encoding="utf-8")
    named = run("simulate", str(scenario()), "--json").out
    own = scenario(("cluster: dgx-a100-80gb", "cluster: hardware/cluster.yaml"))
    assert run("simulate", str(own), "--json").out == named
    inline = json.dumps({**cluster, "device": "hardware/gpu.yaml"})
    own = scenario(("cluster: dgx-a100-80gb", f"cluster: {inline}"))
    assert run("simulate", str(own), "--json").out == named


def test_the_engine_says_what_each_rank_did_and_agrees_with_the_analytic_step(run, scenario):
    report = json.loads(run("simulate", str(scenario()), "--engine", "--json").out)
    engine = report["engine"]
    assert engine["analytic_step_time_s"] == report["step_time_s"]
    assert engine["step_time_s"] == pytest.approx(report["step_time_s"], rel=0.1)
    assert [rank["rank"] for rank in engine["ranks"]] == [0, 1]
    for rank in engine["ranks"]:
        assert 0 < rank["busy_s"]["compute"] <= engine["step_time_s"]
        assert rank["peak_memory_bytes"] > 0


@pytest.mark.parametrize("pipeline", [16, 32])
def test_long_pipelines_show_their_first_and_last_ranks(run, scenario, pipeline):
    path = scenario(("gpus: 16", "gpus: 32"), ("tensor: 2, pipeline: 2", f"tensor: 1, pipeline: {pipeline}"))
    lines = run("simulate", str(path), "--engine").out.split("Busy seconds")[1].splitlines()
    ranks = [words[0] for line in lines if (words := line.split()) and words[0].isdigit()]
    assert ranks == [*map(str, range(8)), *map(str, range(pipeline - 8, pipeline))]
    assert any(line.split()[:1] == ["..."] for line in lines) == (pipeline > 16)


def test_a_schedule_without_a_closed_form_runs_on_the_engine(run, scenario):
    path = str(scenario(("pipeline: 2", "pipeline: 2, schedule: zb-h1")))
    report = json.loads(run("simulate", path, "--json").out)
    assert report["engine"]["analytic_step_time_s"] is None
    assert report["step_time_s"] == report["engine"]["step_time_s"]
    assert sum(report["time_breakdown_s"].values()) == pytest.approx(report["step_time_s"])
    assert "On the event engine" in run("simulate", path).out
    assert all(each["total_s"] >= each["exposed_s"] for each in report["communication"].values())
    assert {"tensor", "pipeline"} <= set(report["communication"])


def test_copies_to_the_host_are_no_kernels(run, scenario):
    path = str(scenario(("pipeline: 2", "pipeline: 2, virtual_pipeline: 2, schedule: pipeoffload-full")))
    lines = run("simulate", path).out.splitlines()
    assert [line.split()[0] for line in lines if "copies to the host" in line] == ["communication"]


def test_the_table_shows_time_communication_and_memory(run, scenario):
    out = run("simulate", str(scenario())).out
    for word in (
        "Where the time goes",
        "gemm",
        "tensor",
        "pipeline bubble",
        "Memory by pipeline stage",
        "activations",
        "total",
    ):
        assert word in out


def test_markup_in_a_users_name_stays_text(run, scenario):
    path = scenario(("model: llama2-7b", "title: '[red]a[/red] [link=x]'\nmodel: llama2-7b"))
    assert "[red]a[/red] [link=x]" in run("simulate", str(path)).out


def test_shipped_scenarios_say_what_they_ask(run):
    for name, path in shipped_scenarios().items():
        assert "?" in question_of(path), name
    listed = json.loads(run("show", "scenarios", "--json").out)["scenarios"]
    assert {entry["name"] for entry in listed} == set(shipped_scenarios())


REQUESTS, FEW_REQUESTS = re.compile(r"^  requests: (\d+)", re.MULTILINE), 100
"""Requests of a paper's serving scenario here: `test_papers` simulates all, in every run of its claims."""


@pytest.mark.slow
@pytest.mark.parametrize("name", list(shipped_scenarios()))
def test_shipped_scenarios_run(run, name, tmp_path):
    text = shipped_scenarios()[name].read_text(encoding="utf-8")
    if "kind: serving" in text:
        if name.startswith("papers/"):
            name = str(tmp_path / "few.yaml")
            few = REQUESTS.sub(lambda line: f"  requests: {min(int(line[1]), FEW_REQUESTS)}", text)
            (tmp_path / "few.yaml").write_text(few, encoding="utf-8")
        assert json.loads(run("simulate", name, "--json").out)["requests"] > 0
        return
    if any(f"kind: {kind}" in text for kind in ("diffusion", "tables", "graph", "frames")):
        assert json.loads(run("simulate", name, "--json").out)["step_time_s"] > 0
        return
    planned = "\nplan:" in text or "kind: rl" in text
    ran = run(*(["simulate", name] if planned else ["plan", name]), "--json")
    assert ran.code in (0, 1), ran.err  # that a plan does not fit is an answer too
    report = json.loads(ran.out)
    assert (report if planned else report["plans"][0])["step_time_s"] > 0


def test_a_trace_folder_that_cannot_be_filled_stays_empty(refused_after_tables, scenario, tmp_path):
    folder = tmp_path / "traces"
    (folder / "rank-1.json.gz" / "is-a-folder").mkdir(parents=True)
    page = tmp_path / "page.html"
    message = refused_after_tables("simulate", str(scenario()), "--trace", str(folder), "--html", str(page))
    assert "rank-1.json.gz" in message
    assert [path.name for path in folder.iterdir()] == ["rank-1.json.gz"]
    assert not page.exists()


def test_names_of_levels_with_markup_stay_text(run, scenario, tmp_path):
    name = '<b>NVLink</b> & "PCIe" \''
    cluster = clusters.get("dgx-a100-80gb").model_dump(mode="json", exclude={"device"}, exclude_defaults=True)
    cluster["device"] = "a100-sxm-80gb"
    cluster["levels"][0]["name"] = name
    path = scenario(("cluster: dgx-a100-80gb", f"cluster: {json.dumps(cluster)}"))
    page = tmp_path / "page.html"
    assert run("simulate", str(path), "--html", str(page)).code == 0
    assert name not in page.read_text(encoding="utf-8")


def test_a_step_too_long_for_the_engine_is_refused_before_it_starts(refused, scenario):
    path = str(scenario(("global_batch: 64", "global_batch: 4194304")))
    message = refused("simulate", path, "--engine")
    assert "tasks for 1,048,576 micro batches" in message
    assert "at most 12 s and 32,768 micro batches" in message
    assert "global_batch" in message


def test_a_long_run_of_the_engine_says_how_long_it_takes(run, scenario, monkeypatch):
    monkeypatch.setattr("simulator.training.step_graph.length.NOTICED_S", 0.0)
    assert "the event engine runs about" in run("simulate", str(scenario()), "--engine").err


def test_progress_of_the_engine_grows_to_one(scenario):
    shares: list[float] = []
    whole = api.simulate(scenario(), engine=True, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert api.simulate(scenario(), engine=True).to_dict() == whole.to_dict()


def test_a_mixed_cluster_is_answered_in_closed_form(run):
    closed = json.loads(run("simulate", "mixed-llama3-70b", "--json").out)
    both = json.loads(run("simulate", "mixed-llama3-70b", "--engine", "--json").out)
    engine = both.pop("engine")
    assert closed == both
    assert closed["step_time_s"] == pytest.approx(engine["step_time_s"], rel=0.015)
    assert [group["stages"] for group in closed["groups"]] == [[0, 1, 2, 3], [4, 5, 6, 7]]
