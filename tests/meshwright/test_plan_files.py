"""`meshwright plan --save`, `--html`, `--csv`: what the files hold, and that they appear together or not."""

import csv
import json
import re

import pytest

from core.yaml_text import yaml_text
from hwmodels.cluster import clusters
from meshwright.exporters.question import scenario_of_search
from meshwright.reports.plans import describe_setting
from simulator.frameworks import frameworks
from simulator.models import models
from simulator.setting import Setting
from simulator.workload import Training

QUESTION = ["--model", "llama2-7b", "--cluster", "dgx-a100-80gb", "--gpus", "16", "--seq-len", "2k"]
ASKED = ["plan", *QUESTION, "--global-batch", "64"]
SERVING = ["plan", "serve", "--model", "llama2-7b", "--cluster", "dgx-a100-80gb", "--gpus", "2"]


@pytest.mark.parametrize("rank", [1, 2, 5])
def test_a_saved_plan_is_simulated_exactly_as_it_was_found(run, tmp_path, rank):
    path = tmp_path / "saved.yaml"
    found = run(*ASKED, "--save", str(path), "--rank", str(rank), "--json")
    entry, again = json.loads(found.out)["plans"][rank - 1], run("simulate", str(path), "--json")
    simulated = json.loads(again.out)
    for key in ("plan", "step_time_s", "mfu", "memory", "time_breakdown_s", "communication"):
        assert simulated[key] == entry[key], key


def test_what_no_catalogue_has_is_saved_with_the_plan(run, tmp_path, monkeypatch):
    """A model and a framework of the user's own, and a cluster of an unusual size."""
    (tmp_path / "there").mkdir()
    model = models.get("mixtral-8x7b").model_dump(mode="json", exclude_none=True) | {
        "name": "1e9",
        "layers": 8,
    }
    (tmp_path / "there" / "model.yaml").write_text(yaml_text(model), encoding="utf-8")
    monkeypatch.chdir(tmp_path / "there")
    question = ["--model", "model.yaml", "--cluster", "gb200-nvl72", "--gpus", "64", "--seq-len", "4k"]
    found = run(
        "plan", *question, "--global-batch", "64", "--save", "saved.yaml", "--limit", "pipeline=2", "--json"
    )
    assert found.code == 0, found.err
    monkeypatch.chdir(tmp_path)
    simulated = json.loads(run("simulate", "there/saved.yaml", "--json").out)
    assert simulated["model"] == "1e9"
    best = json.loads(found.out)["plans"][0]
    assert (simulated["step_time_s"], simulated["memory"]) == (best["step_time_s"], best["memory"])


def test_all_scored_plans_are_in_the_table_in_order(run, tmp_path):
    path = tmp_path / "all.csv"
    report = json.loads(run(*ASKED, "--csv", str(path), "--all", "--json").out)
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == report["scored"]
    times = [float(row["step_time_s"]) for row in rows]
    assert times == pytest.approx(sorted(times), rel=1e-6)
    assert [row["rank"] for row in rows[:3]] == ["1", "2", "3"]
    for row, entry in zip(rows, report["plans"], strict=False):
        assert {name: _written(value) for name, value in entry["plan"].items()} == {
            name: row[name] for name in entry["plan"]
        }
        assert float(row["mfu"]) == pytest.approx(entry["mfu"], rel=1e-6)
        assert float(row["peak_memory_bytes"]) == pytest.approx(entry["memory"]["peak_bytes"], rel=1e-6)
    assert not any(
        cell.startswith(("=", "+", "@", "-")) for row in rows for cell in row.values() if not _number(cell)
    )


def _written(value: object) -> str:
    """A plan's value as a cell holds it: modules as ``--fix`` takes them."""
    return "+".join(value) if isinstance(value, list) else json.dumps(value).strip('"')


def _number(cell: str) -> bool:
    return re.fullmatch(r"-?[0-9.]+(e[-+]?[0-9]+)?", cell) is not None


def test_the_page_has_the_ranking_and_the_bars_of_every_plan(run, tmp_path):
    path = tmp_path / "plans.html"
    report = json.loads(run(*ASKED, "--html", str(path), "--json").out)
    text = path.read_text(encoding="utf-8")
    data = re.findall(r'<script type="application/json" id="figure[^"]*">(.*?)</script>', text, re.DOTALL)
    charts = [json.loads(each) for each in data]
    bars = [[trace["x"] for trace in chart["data"] if trace["type"] == "bar"] for chart in charts]
    time, memory = ([sum(column) for column in zip(*chart, strict=True)] for chart in bars)
    assert time == pytest.approx([entry["step_time_s"] for entry in report["plans"]])
    peaks = [entry["memory"]["peak_bytes"] / 2**30 for entry in report["plans"]]
    assert memory == pytest.approx(peaks)
    for words in ("What this rests on", "nearest published run", "removed", "recommended"):
        assert words in text


def test_a_file_that_cannot_be_written_leaves_none_of_them(run, tmp_path):
    (tmp_path / "out").mkdir()
    ran = run(*ASKED, "--save", str(tmp_path / "out" / "a.yaml"), "--csv", str(tmp_path / "out"), "--json")
    assert ran.code == 2
    assert json.loads(ran.out)["plans"]
    assert "Is a directory" in ran.err
    assert list((tmp_path / "out").iterdir()) == []


def test_ranks_and_files_that_are_not_there_are_named(run, refused, tmp_path):
    path = str(tmp_path / "file.yaml")
    ran = run(*ASKED, "--save", path, "--rank", "6", "--json")
    assert (ran.code, ran.err) == (2, "error: rank: 5 plans are shown, found 6; a higher top shows more\n")
    assert "--csv" in refused(*SERVING, "--isl", "500", "--osl", "100", "--csv", path)
    assert "--csv" in refused("plan", *QUESTION[:4], "--gpus", "8..16", "--global-batch", "64", "--csv", path)


@pytest.mark.slow
def test_a_deployment_is_saved_too(run, tmp_path):
    path = str(tmp_path / "serve.yaml")
    ran = run(
        *SERVING, "--isl", "500", "--osl", "100", "--ttft", "2", "--tpot", "0.1", "--save", path, "--json"
    )
    assert ran.code == 0, ran.err
    assert run("simulate", path, "--json").code == 0


def test_long_sequences_show_both_counts_of_attention(run):
    long = ["plan", "--model", "llama3.1-8b", "--cluster", "dgx-h100", "--gpus", "64", "--seq-len", "128k"]
    entry = json.loads(run(*long, "--global-batch", "64", "--json").out)["plans"][0]
    assert entry["mfu_causal"] < 0.75 * entry["mfu"]
    assert "causal MFU" in run(*long, "--global-batch", "64").out
    assert "causal MFU" not in run(*ASKED).out


@pytest.mark.parametrize("name", ["plan", "plan.json", "plan.txt"])
def test_a_plan_is_saved_as_yaml_only_which_simulate_reads(refused, name):
    assert refused(*ASKED, "--save", name).startswith("error: --save: a scenario is a .yaml file")


def test_two_outputs_of_one_name_are_refused_before_the_search(refused, tmp_path):
    path = str(tmp_path / "a.csv")
    assert "need different files" in refused(*ASKED, "--csv", path, "--html", path)


@pytest.mark.parametrize(
    ("workload", "model"),
    [
        ({"adapter": {"rank": 16, "base": "nf4"}}, "llama3.1-8b"),
        ({"source_len": 512}, "flan-t5-xl"),
        ({"expert_load": 1.5, "causal": False}, "llama3.1-8b"),
        ({}, "llama3.1-8b"),
    ],
)
def test_a_saved_search_has_the_whole_workload(workload, model):
    """Exports of a search with adapters trained all weights (0.20.0)."""
    stated = Training.model_validate({"seq_len": 256, "global_batch": 8, **workload})
    setting = Setting(models.get(model), clusters.get("dgx-h100"), stated, frameworks.get("megatron-bridge"))
    data = {"question": describe_setting(setting), "plans": [{"plan": None}]}
    written = scenario_of_search(json.loads(json.dumps(data)), 1, "test")["workload"]
    assert Training.model_validate(written) == stated
